-- run.hour: note a failure in the hour's list; a step of its own where slots part the keys.
--
-- KEYS  1 failed   list  ids that failed in the hour, newest first
--       2 known    hash  id: how often it is in that list because of us, or was taken over
-- ARGV  1 item     text
--       2 start_ms int>=0
--       3 end_ms   int>=0
--       4 ttl_ms   int>0
--       5 max      int>0
--       6 again    int>=0  1: not if it is among the newest hundred
-- OUT   "listed"
--       "stale"  now_ms
--       "malformed"  key:bytes
-- COST  O(1)

--@include clock
--@include number

local failed, known = KEYS[1], KEYS[2]
local item, start_ms, end_ms, ttl_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

local now_ms = math.floor(clock_us() / 1000)
if now_ms < start_ms or now_ms >= end_ms then return { "stale", now_ms } end
if ARGV[6] == "1" then
  for _, held in ipairs(redis.call("LRANGE", failed, 0, 99)) do
    if held == item then return { "listed" } end
  end
end
if not number_read(redis.call("HGET", known, item) or "0") then return { "malformed", known } end
redis.call("LPUSH", failed, item)
redis.call("LTRIM", failed, 0, ARGV[5] - 1)
redis.call("PEXPIRE", failed, ttl_ms)
redis.call("HINCRBY", known, item, 1)
redis.call("PEXPIRE", known, ttl_ms)
return { "listed" }
