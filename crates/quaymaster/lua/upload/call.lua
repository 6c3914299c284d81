-- upload.call: an upload has a chunk to claim, now or later.
--
-- KEYS  1 ready      zset   uploads with chunks to claim, by the microsecond
-- ARGV  1 id         text
--       2 delay_ms   int>=0
-- OUT   "called"
-- COST  O(log n)

--@include clock
--@include number
--@include upload/ready

local ready = KEYS[1]
local id, delay_ms = ARGV[1], tonumber(ARGV[2])
local now_us = clock_us()
redis.call("ZREM", ready, "")
ready_at(ready, id, now_us + delay_ms * 1000)
return { "called" }
