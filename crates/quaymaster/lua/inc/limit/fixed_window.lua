-- limit/fixed_window: one integer string per window.
--
-- A bucket in the key gives the window: [start_ms, end_ms), and the counter outlives its last call by
-- ttl_ms. Without a bucket both are 0, windows are aligned to the epoch, and the counter ends with its
-- window. Every write sets the TTL anew, so a counter that lost it is healed by the next call.
local function fixed_window_check(counter, now_us, cost, limit, window_ms, ttl_ms, start_ms, end_ms)
  local now_ms = math.floor(now_us / 1000)
  if end_ms == 0 then
    end_ms = now_ms - now_ms % window_ms + window_ms
  elseif now_ms < start_ms or now_ms >= end_ms then
    return "stale", now_ms, 0, 0
  end
  local held = redis.call("GET", counter) or "0"
  if not string.find(held, "^%-?%d+$") or #held > 16 then return "malformed", 0, 0, 0 end
  local used = math.max(tonumber(held), 0)
  return used + cost <= limit and "allowed" or "limited", used, end_ms - now_ms, 0
end

local function fixed_window_write(counter, now_us, used, ttl_ms, end_ms, reset_ms)
  if end_ms > 0 then
    redis.call("SET", counter, string.format("%.0f", used), "PX", ttl_ms)
  else
    -- A key ends when its time is past, not when it is reached: one millisecond less.
    local last_ms = math.floor(now_us / 1000) + reset_ms - 1
    redis.call("SET", counter, string.format("%.0f", used), "PXAT", string.format("%.0f", last_ms))
  end
  return used, reset_ms, 0
end

local function fixed_window_commit(counter, now_us, cost, _, _, ttl_ms, _, end_ms, used, reset_ms)
  return fixed_window_write(counter, now_us, used + cost, ttl_ms, end_ms, reset_ms)
end

-- A full counter is not written, so one without a TTL, or with one past its window, is mended here.
local function fixed_window_heal(counter, now_us, ttl_ms, end_ms, used, reset_ms)
  local left_ms = redis.call("PTTL", counter)
  if left_ms == -1 or (end_ms == 0 and left_ms > reset_ms) then
    fixed_window_write(counter, now_us, used, ttl_ms, end_ms, reset_ms)
  end
end
