-- clean.remove: delete the key of a bucket whose life after the bucket's end is over.
--
-- KEYS  1 key      any    a documented key with a time bucket
-- ARGV  1 holds    text   what the schema says it holds
--       2 over_ms  int  the end of its bucket and the declared life after it
-- OUT   "done"
--       "kept"
-- COST  O(n) of what is removed

--@include clock

local key = KEYS[1]
local holds, over_ms = ARGV[1], tonumber(ARGV[2])

if redis.call("TYPE", key).ok ~= holds then return { "kept" } end
if math.floor(clock_us() / 1000) < over_ms then return { "kept" } end
redis.call("DEL", key)
return { "done" }
