-- upload.arrive: chunks are here, in flight in place of their reservation, and to be claimed.
--
-- KEYS  1 in_flight         hash    bytes by name
--       2 in_flight_until   zset    when each is given up
--       3 in_flight_total   string  their sum
--       4 ready             zset    uploads with chunks to claim, by the microsecond
-- ARGV  1.. id              text    the upload, empty when nothing is to be claimed
--       2 reservation       text    given back, empty for none
--       3 lease_ms          int>0   how long a chunk's bytes can be there
--       4 chunks            text    name and bytes of each, at most 500
-- OUT   "arrived"  total
-- COST  O(chunks log n)

--@include clock
--@include upload/flight
--@include upload/ready

local names, ends, sum, ready = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

redis.call("HLEN", names)
redis.call("ZCARD", ends)
redis.call("ZCARD", ready)
local now_us = clock_us()
local until_ms = math.floor(now_us / 1000) + ARGV[3]
if ARGV[2] ~= "" then flight_drop(names, ends, sum, ARGV[2]) end
for at = 4, #ARGV, 2 do flight_put(names, ends, sum, ARGV[at], tonumber(ARGV[at + 1]), until_ms) end
if ARGV[1] ~= "" then ready_at(ready, ARGV[1], now_us) end
return { "arrived", flight_sum(sum) }
