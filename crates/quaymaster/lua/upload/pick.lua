-- upload.pick: the upload that has waited longest for a claim; it goes behind the others, so that all have their turn.
--
-- KEYS  1 ready   zset   uploads with chunks to claim, by the microsecond
-- ARGV  none
-- OUT   "picked"  id:bytes  score; score: what `upload.rest` must find
--       "none"    next_ms; until there is one, -1 when there is none
-- COST  O(log n)

--@include clock
--@include number

local ready = KEYS[1]
local first = redis.call("ZRANGE", ready, 0, 0, "WITHSCORES")
if not first[1] then return { "none", -1 } end
local now_us = clock_us()
local left = number_score(first[2]) - now_us
-- So late is no moment of ours: another program or a clock that was wrong wrote it.
if left > 0 then
  local last = redis.call("ZREVRANGE", ready, 0, 0, "WITHSCORES")
  if number_score(last[2]) > now_us + 604800000000 then first, left = last, 0 end
end
if left > 0 then return { "none", math.ceil(left / 1000) } end
local score = string.format("%.0f", now_us)
-- As in `upload.claim`: a store without memory must be drained.
redis.call("ZREM", ready, "")
redis.call("ZADD", ready, score, first[1])
return { "picked", first[1], score }
