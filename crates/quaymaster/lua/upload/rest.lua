-- upload.rest: an upload has nothing to claim until later, unless something came since it was picked.
--
-- KEYS  1 ready     zset   uploads with chunks to claim, by the microsecond
-- ARGV  1 id       text
--       2 score    int   as it was picked
--       3 next_ms  int   until there is something, -1 for never
-- OUT   "rests"
--       "called"
-- COST  O(log n)

--@include clock

local ready = KEYS[1]
local id, score, next_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if tonumber(redis.call("ZSCORE", ready, id) or "") ~= score then return { "called" } end
local now_us = clock_us()
redis.call("ZREM", ready, "")
if next_ms < 0 then
  redis.call("ZREM", ready, id)
else
  redis.call("ZADD", ready, string.format("%.0f", now_us + next_ms * 1000), id)
end
return { "rests" }
