-- cache.load.string: the value; or the lease to load it; or how long whoever loads it has left.
--
-- KEYS  1 entry     string  the value
--       2 load      string  who loads it, and until when
-- ARGV  1 token     text    unique per load
--       2 lease_ms  int>0
-- OUT   "hit"   value:any
--       "load"  lease_ms
--       "wait"  remaining_ms
-- COST  O(n) of the value

--@include clock
--@include number
--@include cache

local entry, load = KEYS[1], KEYS[2]
local token, lease_ms = ARGV[1], tonumber(ARGV[2])

-- What another program left there under another type is no value; whoever loads replaces it.
local value = redis.call("TYPE", entry).ok == "string" and redis.call("GET", entry)
if value then return { "hit", value } end
local word, ms = cache_claim(load, token, lease_ms, math.floor(clock_us() / 1000))
return { word, ms }
