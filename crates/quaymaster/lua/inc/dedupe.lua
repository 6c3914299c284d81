-- dedupe: who was first.
--
-- "first" | "duplicate" 0 value | "stale" now_ms. A key that another program left without an end gets one: duplicates
-- for ever would be a lost item.
local function dedupe_check(first, ttl_ms, start_ms, end_ms, now_us)
  if end_ms ~= "0" then
    local now_ms = math.floor(now_us / 1000)
    if now_ms < start_ms + 0 or now_ms >= end_ms + 0 then return "stale", now_ms end
  end
  local held = redis.call("GET", first)
  if not held then return "first", 0 end
  if redis.call("PTTL", first) == -1 then redis.call("PEXPIRE", first, ttl_ms) end
  return "duplicate", 0, held
end
