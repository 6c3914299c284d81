-- limit/sliding_window: a hash with this window's counter and the one before, weighted by overlap.
--
-- Fields: `start` (ms, aligned to the epoch), `current`, `previous`. The calls of the window before are
-- taken as evenly spread: used = ceil(previous × share still covered) + current.
local function sliding_window_read(state, now_us, window_ms)
  local now_ms = math.floor(now_us / 1000)
  local start_ms = now_ms - now_ms % window_ms
  local held = redis.call("HMGET", state, "start", "current", "previous")
  for field = 1, 3 do
    held[field] = number_read(held[field] or "0")
    if not held[field] then return nil end
  end
  local held_ms, current, previous = held[1], held[2], held[3]
  if held_ms == start_ms - window_ms then
    current, previous = 0, current
  elseif held_ms < start_ms then
    current, previous = 0, 0
  end
  -- A window that lies ahead was written by another clock: it counts as this one.
  return previous, current, now_ms - start_ms, held_ms > start_ms
end

local function sliding_window_check(state, now_us, cost, limit, window_ms)
  local previous, current, elapsed_ms = sliding_window_read(state, now_us, window_ms)
  if not previous then return "malformed", 0, 0, 0 end
  local used = math.ceil(previous * (window_ms - elapsed_ms) / window_ms) + current
  return used + cost <= limit and "allowed" or "limited", previous, current, elapsed_ms
end

local function sliding_window_write(state, now_us, window_ms, ttl_ms, previous, current)
  local now_ms = math.floor(now_us / 1000)
  local start_ms = now_ms - now_ms % window_ms
  redis.call("HSET", state, "start", string.format("%.0f", start_ms),
    "current", string.format("%.0f", current), "previous", string.format("%.0f", previous))
  redis.call("PEXPIRE", state, ttl_ms)
  return previous, current, now_ms - start_ms
end

local function sliding_window_commit(state, now_us, cost, _, window_ms, ttl_ms, _, _, previous, current)
  return sliding_window_write(state, now_us, window_ms, ttl_ms, previous, current + cost)
end

-- Takes units off; what this window did not count was counted in the one before.
local function sliding_window_refund(state, now_us, cost, window_ms, ttl_ms)
  local previous, current, elapsed_ms = sliding_window_read(state, now_us, window_ms)
  if not previous then return nil end
  local from_current = math.min(current, cost)
  local from_previous = math.min(previous, cost - from_current)
  current, previous = current - from_current, previous - from_previous
  if from_current + from_previous > 0 then
    sliding_window_write(state, now_us, window_ms, ttl_ms, previous, current)
  end
  return previous, current, elapsed_ms
end

-- A full state is not written, so one from the future is brought into the present here.
local function sliding_window_heal(state, now_us, window_ms, ttl_ms)
  local previous, current, _, ahead = sliding_window_read(state, now_us, window_ms)
  if ahead then sliding_window_write(state, now_us, window_ms, ttl_ms, previous, current) end
end
