-- upload.hold: count bytes that are there, whether or not they fit.
--
-- KEYS  1-3 flight  @flight
-- ARGV  1 lease_ms  int>0
--       2 mark      text    ` c` for chunks that are taken, else empty
--       3.. names   each    at most 500
--           name    text
--           bytes   int>=0
-- OUT   "held"  total
-- COST  O(names log n)

--@include clock
--@include number
--@include upload/flight

local names, ends, sum = KEYS[1], KEYS[2], KEYS[3]

local spoiled = flight_sound(names, ends, sum)
if spoiled then return spoiled end
local until_ms = math.floor(clock_us() / 1000) + ARGV[1]
redis.call("ZREM", ends, "")
for at = 3, #ARGV, 2 do flight_put(names, ends, sum, ARGV[at], tonumber(ARGV[at + 1]), ARGV[2], until_ms) end
return { "held", flight_sum(sum) }
