-- limit/back: takes off what a call counted at `taken_ms`; `words` from `at` on are those it was counted with.
--
-- Nothing is taken off a window that has passed, and nothing of state that is not ours any more.
local function limit_back(key, now_us, words, at, taken_ms)
  local algorithm, cost, limit, ttl_ms = words[at], words[at + 1] + 0, words[at + 2] + 0, words[at + 4]
  local window, now_ms = words[at + 3] + 0, math.floor(now_us / 1000)
  if algorithm == "fixed_window" then
    local end_ms = words[at + 6]
    local word, used, reset_ms, life = fixed_window_check(key, now_us, cost, limit, window, ttl_ms, words[at + 5], end_ms)
    -- Without a bucket the window began when its counter did. TIME may be a millisecond ahead of expiry.
    local passed = end_ms == "0" and taken_ms + 1 < now_ms + reset_ms - window
    if (word == "allowed" or word == "limited") and used > 0 and not passed then
      fixed_window_commit(key, now_us, -math.min(cost, used), limit, window, ttl_ms, "", end_ms, used, reset_ms, life)
    end
  elseif algorithm == "sliding_log" then
    for call = 1, cost do redis.call("ZREM", key, string.format("%s-%s-%d", taken_ms, words[at + 5], call)) end
  elseif algorithm == "sliding_window" then
    local previous, current = sliding_window_read(key, now_us, window)
    local ago = (now_ms - now_ms % window) - (taken_ms - taken_ms % window)
    if previous and ago <= 0 and current > 0 then
      sliding_window_write(key, now_us, window, ttl_ms, previous, math.max(current - cost, 0))
    elseif previous and ago == window and previous > 0 then
      sliding_window_write(key, now_us, window, ttl_ms, math.max(previous - cost, 0), current)
    end
  else
    token_bucket_refund(key, now_us, limit, window, ttl_ms, words[at + 5], words[at + 6])
  end
end
