-- cache.renew: keep the lease of a load that is still running.
--
-- KEYS  1 load      string  who loads, and until when
-- ARGV  1 token     text    of the load
--       2 lease_ms  int>0
-- OUT   "ours"
--       "lost"
-- COST  O(1)

--@include clock
--@include cache

local load, token, lease_ms = KEYS[1], ARGV[1], tonumber(ARGV[2])

if not cache_holds(load, token) then return { "lost" } end
cache_lease(load, token, lease_ms, math.floor(clock_us() / 1000))
return { "ours" }
