-- clean.heal: give a key the life that the schema declares and that it has lost.
--
-- KEYS  1 key     any    a declared key
-- ARGV  1 holds   text   what the schema says it holds
--       2 ttl_ms  int>0  how long it lives
-- OUT   "done"
--       "kept"
-- COST  O(1)

local key = KEYS[1]
local holds, ttl_ms = ARGV[1], ARGV[2]

if redis.call("TYPE", key).ok ~= holds then return { "kept" } end
-- Whoever changed it meanwhile has given it a life.
if redis.call("PTTL", key) ~= -1 then return { "kept" } end
redis.call("PEXPIRE", key, ttl_ms)
return { "done" }
