-- dedupe.first: whether nobody was here before, and if somebody was, what they left.
--
-- KEYS  1 first     string  the value of the first one
--       2 request?  string  the answer kept for a repeated request_id
-- ARGV  1 value     bytes
--       2 ttl_ms    int>0
--       3 start_ms  int>=0  the bucket in the key, 0 without one
--       4 end_ms    int>=0
--       5 keep_ms   int>0   how long a repeated request_id is recognised
-- OUT   "first"
--       "duplicate"  value
--       "stale"      now_ms
--       "conflict"
-- COST  O(n) of the value

--@include clock
--@include replay

local first, request = KEYS[1], KEYS[2]
local value, ttl_ms, keep_ms = ARGV[1], ARGV[2], ARGV[5]
local start_ms, end_ms = tonumber(ARGV[3]), tonumber(ARGV[4])

if request then
  local kept = replay_read(request, "first")
  if kept then return kept end
end
if end_ms > 0 then
  local now_ms = math.floor(clock_us() / 1000)
  if now_ms < start_ms or now_ms >= end_ms then return { "stale", now_ms } end
end
local held = redis.call("GET", first)
if held then
  -- Another program may have left it without an end; duplicates for ever would be a lost item.
  if redis.call("PTTL", first) == -1 then redis.call("PEXPIRE", first, ttl_ms) end
  return { "duplicate", held }
end
redis.call("SET", first, value, "PX", ttl_ms)
if request then replay_keep_all(request, "first", keep_ms, { "first" }) end
return { "first" }
