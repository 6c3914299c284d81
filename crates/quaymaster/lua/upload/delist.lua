-- upload.delist: an upload is gone; neither sweep nor claim looks for it any more.
--
-- KEYS  1 uploads   zset   uploads by the millisecond the sweep is to act
--       2 ready     zset   uploads with chunks to claim
-- ARGV  1 id        text
-- OUT   "delisted"
-- COST  O(log n)

local uploads, ready = KEYS[1], KEYS[2]
local id = ARGV[1]
redis.call("ZREM", uploads, id)
redis.call("ZREM", ready, id)
return { "delisted" }
