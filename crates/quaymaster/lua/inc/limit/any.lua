-- limit/any: a limit whose algorithm is told with the call.
--
-- `words` holds from `at` on:
--
-- ARGV  @limit
--       algorithm  text
--       cost       int>0
--       limit      int>=0
--       window     int>0   this and what follows as its own take has them, filled up with zeros
--       ttl_ms     int>0
--       third      word
--       fourth     word
local function limit_check(key, now_us, words, at)
  local algorithm, cost, limit = words[at], words[at + 1] + 0, words[at + 2] + 0
  if algorithm == "fixed_window" then
    return fixed_window_check(key, now_us, cost, limit, words[at + 3] + 0, "", words[at + 5], words[at + 6])
  elseif algorithm == "sliding_log" then
    return sliding_log_check(key, now_us, cost, limit, words[at + 3] + 0)
  elseif algorithm == "sliding_window" then
    return sliding_window_check(key, now_us, cost, limit, words[at + 3] + 0)
  end
  return token_bucket_check(key, now_us, cost, limit, words[at + 3] + 0, "", words[at + 5], words[at + 6])
end

local function limit_commit(key, now_us, words, at, x, y, z)
  local algorithm, cost, limit, ttl_ms = words[at], words[at + 1] + 0, words[at + 2] + 0, words[at + 4]
  if algorithm == "fixed_window" then
    return fixed_window_commit(key, now_us, cost, limit, words[at + 3], ttl_ms, "", words[at + 6], x, y, z)
  elseif algorithm == "sliding_log" then
    return sliding_log_commit(key, now_us, cost, limit, words[at + 3] + 0, ttl_ms, words[at + 5], "", x, y)
  elseif algorithm == "sliding_window" then
    return sliding_window_commit(key, now_us, cost, limit, words[at + 3] + 0, ttl_ms, "", "", x, y)
  end
  return token_bucket_commit(key, now_us, cost, limit, "", ttl_ms, words[at + 5], words[at + 6], x, y)
end

-- The numbers of a limit that was checked and not counted; state that would refuse for ever is mended.
local function limit_leave(key, now_us, words, at, word, x, y, z)
  local algorithm = words[at]
  if word == "limited" then
    if algorithm == "fixed_window" then
      if fixed_window_ails(key, words[at + 6], z) then
        fixed_window_commit(key, now_us, 0, 0, words[at + 3], words[at + 4], "", words[at + 6], x, y, 2)
      end
    elseif algorithm == "sliding_log" then
      sliding_log_heal(key, math.floor(now_us / 1000), words[at + 3] + 0, words[at + 4], y)
    elseif algorithm == "sliding_window" then
      sliding_window_heal(key, now_us, words[at + 3] + 0, words[at + 4])
    else
      token_bucket_heal(key, now_us, words[at + 2] + 0, words[at + 3] + 0, words[at + 4])
    end
  end
  return x, y, z
end
