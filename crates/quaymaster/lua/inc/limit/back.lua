-- limit/back: takes off what a call counted at `taken_ms`; `words` from `at` on are those it was counted with.
--
-- Nothing is taken off a window that has passed, and nothing of state that is not ours any more.
local function limit_back(key, now_us, words, at, taken_ms)
  local algorithm, cost, limit, ttl_ms = words[at], words[at + 1] + 0, words[at + 2] + 0, words[at + 4]
  local window = words[at + 3] + 0
  if algorithm == "fixed_window" then
    local end_ms = words[at + 6]
    local word, used, reset_ms, life = fixed_window_check(key, now_us, cost, limit, window, ttl_ms, words[at + 5], end_ms)
    if (word == "allowed" or word == "limited") and used > 0 then
      fixed_window_commit(key, now_us, -math.min(cost, used), limit, window, ttl_ms, "", end_ms, used, reset_ms, life)
    end
  elseif algorithm == "sliding_log" then
    for call = 1, cost do redis.call("ZREM", key, string.format("%s-%s-%d", taken_ms, words[at + 5], call)) end
  elseif algorithm == "sliding_window" then
    sliding_window_refund(key, now_us, cost, window, ttl_ms)
  else
    token_bucket_refund(key, now_us, limit, window, ttl_ms, words[at + 5], words[at + 6])
  end
end
