-- upload.arrive: a chunk is taken: its bytes count for as long as they can be there, and it is to be claimed.
--
-- KEYS  1-3 flight  @flight
--       4 ready     zset     uploads with chunks to claim, by the microsecond
-- ARGV  1 id                text    the upload
--       2 back              text    a name that is given back, empty for none
--       3 name              text    the chunk's; one that was given back meanwhile, being durable already, stays so
--       4 bytes             int>=0  as many as the chunk has
--       5 lease_ms          int>0   how long they can be there
-- OUT   "arrived"  total
-- COST  O(log n)

--@include clock
--@include number
--@include upload/flight
--@include upload/ready

local names, ends, sum, ready = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, back, name, bytes, lease_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

local spoiled = flight_sound(names, ends, sum)
if spoiled then return spoiled end
redis.call("ZCARD", ready)
local now_us = clock_us()
redis.call("ZREM", ends, "")
if back ~= "" then flight_drop(names, ends, sum, back) end
local held = flight_bytes(names, name)
if held then flight_put(names, ends, sum, name, bytes, " c", math.floor(now_us / 1000) + lease_ms) end
ready_at(ready, id, now_us)
return { "arrived", flight_sum(sum) }
