-- batch.forget: drop a batch from the index whose keys have expired.
--
-- KEYS  1 open   zset    batch ids by the millisecond they close
--       2 items  string  a JSON list
-- ARGV  1 id     text
-- OUT   "forgotten"
--       "kept"
-- COST  O(log n) of open batches

local open, items = KEYS[1], KEYS[2]
local id = ARGV[1]

if redis.call("EXISTS", items) == 1 then return { "kept" } end
-- Whoever queued it has taken it out already.
if not redis.call("ZSCORE", open, id) then return { "kept" } end
redis.call("ZREM", open, id)
return { "forgotten" }
