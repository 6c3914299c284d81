-- limit/fixed_window: one integer string per window.
--
-- A bucket in the key gives the window: [start_ms, end_ms), and the counter outlives its last call by
-- ttl_ms. Without a bucket both are 0: the window begins with its first call and ends with the counter,
-- whose age the store judges by one clock only. TIME is not compared with that age: on some servers it
-- moves on inside a script while expiry does not.
--
-- The last number of an answer is the counter's life: 0 given by the bucket or not begun, 1 running,
-- 2 without a TTL or with one longer than the window.
local function fixed_window_check(counter, now_us, cost, limit, window_ms, ttl_ms, start_ms, end_ms)
  local now_ms = math.floor(now_us / 1000)
  if end_ms > 0 and (now_ms < start_ms or now_ms >= end_ms) then return "stale", now_ms, 0, 0 end
  local held = redis.call("GET", counter)
  local used, reset_ms, life = 0, end_ms > 0 and end_ms - now_ms or 0, 0
  if held then
    used = string.find(held, "^%-?%d+$") and #held <= 16 and tonumber(held)
    if not used or used > 1e15 then return "malformed", 0, 0, 0 end
    used = math.max(used, 0)
    if end_ms == 0 then
      reset_ms, life = redis.call("PTTL", counter), 1
      if reset_ms < 0 or reset_ms > window_ms then reset_ms, life = window_ms, 2 end
    end
  end
  return used + cost <= limit and "allowed" or "limited", used, reset_ms, life
end

local function fixed_window_write(counter, used, window_ms, ttl_ms, end_ms, reset_ms, life)
  local count = string.format("%.0f", used)
  if end_ms > 0 then
    redis.call("SET", counter, count, "PX", ttl_ms)
  elseif life == 1 then
    redis.call("SET", counter, count, "KEEPTTL")
  else
    redis.call("SET", counter, count, "PX", window_ms)
    reset_ms, life = window_ms, 1
  end
  return used, reset_ms, life
end

local function fixed_window_commit(counter, _, cost, _, window_ms, ttl_ms, _, end_ms, used, reset_ms, life)
  return fixed_window_write(counter, used + cost, window_ms, ttl_ms, end_ms, reset_ms, life)
end

-- A full counter is not written, so one that would never end, or end too late, is mended here.
local function fixed_window_heal(counter, window_ms, ttl_ms, end_ms, used, life)
  if life == 2 or (end_ms > 0 and redis.call("PTTL", counter) == -1) then
    fixed_window_write(counter, used, window_ms, ttl_ms, end_ms, 0, 0)
  end
end
