-- cache.fill.hash: keep the fields that were loaded, unless somebody else put or deleted the entry meanwhile.
--
-- KEYS  1 entry    hash    the fields
--       2 load     string  who loads it, and until when
-- ARGV  1 token     text    of the load
--       2 ttl_ms    int>=0  0 keeps it for ever
--       3 channel   bytes   where those listen who wait for the value
--       4.. fields  each
--           field   bytes
--           value   bytes
-- OUT   "filled"
--       "lost"
-- COST  O(n) fields; at most 1000 are written

--@include cache

local entry, load = KEYS[1], KEYS[2]
local token, ttl_ms, channel = ARGV[1], ARGV[2], ARGV[3]

if not cache_holds(load, token) then return { "lost" } end
cache_write_hash(entry, ttl_ms, ARGV, 4)
cache_wake(cache_settle(load), channel)
return { "filled" }
