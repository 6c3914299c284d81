-- limit/fixed_window: one integer string per window.
--
-- A bucket in the key gives the window: [start_ms, end_ms), and the counter outlives its last call by
-- ttl_ms. Without a bucket both are "0": the window begins with its first call and ends with the counter,
-- whose age the store judges by one clock only. TIME is not compared with that age: on some servers it
-- moves on inside a script while expiry does not.
--
-- The last number of an answer is the counter's life: 0 given by the bucket or not begun, 1 running,
-- 2 to be begun anew, since it has no TTL, or one longer than the window, or a negative count.
--
-- What is only handed on may stay the string it came as: turning it into a number and back is a good part
-- of what a call costs. Each function has one exit, so that the build can put it where it is called.
local function fixed_window_check(counter, now_us, cost, limit, window_ms, _, start_ms, end_ms)
  local verdict, used, reset_ms, life = "limited", 0, 0, 0
  local now_ms = end_ms ~= "0" and math.floor(now_us / 1000)
  if now_ms then reset_ms = end_ms - now_ms end
  if now_ms and (reset_ms <= 0 or now_ms - start_ms < 0) then
    verdict, used, reset_ms = "stale", now_ms, 0
  else
    local held = redis.call("GET", counter)
    if held then
      -- Only what INCRBY can count on from: no zero in front.
      used = #held <= 16 and (held == "0" or string.find(held, "^%-?[1-9]%d*$")) and tonumber(held)
      if not used or used > 1e15 then
        verdict, used, reset_ms = "malformed", 0, 0
      elseif not now_ms then
        reset_ms, life = redis.call("PTTL", counter), 1
        if used < 0 or reset_ms < 0 or reset_ms > window_ms then reset_ms, life = window_ms, 2 end
      end
      if used < 0 then used = 0 end
    end
    if verdict == "limited" and used + cost <= limit then verdict = "allowed" end
  end
  return verdict, used, reset_ms, life
end

-- Adds to the count: the cost of a call, less than nothing to give back, nothing to mend its TTL.
local function fixed_window_commit(counter, _, add, _, window_ms, ttl_ms, _, end_ms, used, reset_ms, life)
  if life == 1 then
    used = redis.call("INCRBY", counter, add)
  elseif end_ms ~= "0" then
    used, life = used + add, 0
    redis.call("SET", counter, used, "PX", ttl_ms)
  else
    used, reset_ms, life = used + add, window_ms, 1
    redis.call("SET", counter, used, "PX", window_ms)
  end
  return used, reset_ms, life
end

-- A full counter is not written: whether this one would never end, or end too late, and must be mended.
local function fixed_window_ails(counter, end_ms, life)
  return life == 2 or (end_ms ~= "0" and redis.call("PTTL", counter) == -1)
end
