-- cache.fill.string: keep what was loaded, unless somebody else put or deleted the entry meanwhile.
--
-- KEYS  1 entry    string  the value
--       2 load     string  who loads it, and until when
-- ARGV  1 token    text    of the load
--       2 value    bytes
--       3 ttl_ms   int>=0  0 keeps it for ever
--       4 channel  bytes   where those listen who wait for the value
-- OUT   "filled"
--       "lost"
-- COST  O(n) of the value

--@include cache

local entry, load = KEYS[1], KEYS[2]
local token, value, ttl_ms, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if not cache_holds(load, token) then return { "lost" } end
cache_write_string(entry, value, ttl_ms)
cache_wake(cache_settle(load), channel)
return { "filled" }
