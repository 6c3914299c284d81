-- cache.leave: give the lease of a load back without a value, so that the next one may load.
--
-- KEYS  1 load     string  who loads, and until when
-- ARGV  1 token    text   of the load
--       2 channel  bytes  where those listen who wait for the value
-- OUT   "left"
--       "lost"
-- COST  O(1)

--@include cache

local load, token, channel = KEYS[1], ARGV[1], ARGV[2]

if not cache_holds(load, token) then return { "lost" } end
cache_wake(cache_settle(load), channel)
return { "left" }
