-- limit/sliding_window: a hash with this window's counter and the one before, weighted by overlap.
--
-- Fields: `start` (ms, aligned to the epoch), `current`, `previous`. The calls of the window before are
-- taken as evenly spread: used = ceil(previous × share still covered) + current.
local function sliding_window_read(state, now_us, window_ms)
  local now_ms = math.floor(now_us / 1000)
  local start_ms = now_ms - now_ms % window_ms
  local held = redis.call("HMGET", state, "start", "current", "previous")
  local held_ms = tonumber(held[1] or 0)
  local current, previous = tonumber(held[2] or 0), tonumber(held[3] or 0)
  if not (held_ms and current and previous) then return nil end
  if held_ms == start_ms - window_ms then
    current, previous = 0, current
  elseif held_ms < start_ms then
    current, previous = 0, 0
  end
  return previous, current, now_ms - start_ms
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
