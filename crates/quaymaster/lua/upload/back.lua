-- upload.back: give back bytes in flight.
--
-- KEYS  1-3 flight  @flight
-- ARGV  1.. names  text  at most 1000
-- OUT   "given"  count  total
-- COST  O(names log n)

--@include number
--@include upload/flight

local names, ends, sum = KEYS[1], KEYS[2], KEYS[3]
local spoiled = flight_sound(names, ends, sum)
if spoiled then return spoiled end
local given = 0
for at = 1, #ARGV do given = given + flight_drop(names, ends, sum, ARGV[at]) end
return { "given", given, flight_sum(sum) }
