-- cache.load.hash: the fields; or the lease to load them; or how long whoever loads them has left.
--
-- KEYS  1 entry     hash    the fields
--       2 load      string  who loads it, and until when
-- ARGV  1 token     text    unique per load
--       2 lease_ms  int>0
-- OUT   "hit"   fields:any; a table: field, value, … in no order
--       "load"  lease_ms
--       "wait"  remaining_ms
-- COST  O(n) fields

--@include clock
--@include number
--@include cache

local entry, load = KEYS[1], KEYS[2]
local token, lease_ms = ARGV[1], tonumber(ARGV[2])

-- What another program left there under another type is no value; whoever loads replaces it.
local fields = redis.call("TYPE", entry).ok == "hash" and redis.call("HGETALL", entry) or {}
if #fields > 0 then return { "hit", fields } end
local word, ms = cache_claim(load, token, lease_ms, math.floor(clock_us() / 1000))
return { word, ms }
