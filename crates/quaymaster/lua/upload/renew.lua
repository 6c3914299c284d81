-- upload.renew: reservations begin anew, those that are held.
--
-- KEYS  1 in_flight         hash  bytes by name
--       2 in_flight_until   zset  when each is given up
-- ARGV  1.. lease_ms        int>0
--       2 names             text  at most 1000
-- OUT   "renewed"  then 1 for each that is held, 0 for one that was given up
-- COST  O(names log n)

--@include clock

local names, ends = KEYS[1], KEYS[2]
local until_ms = string.format("%.0f", math.floor(clock_us() / 1000) + ARGV[1])
local reply = { "renewed" }
redis.call("ZREM", ends, "")
for at = 2, #ARGV do
  local bytes = redis.call("HGET", names, ARGV[at])
  local held = bytes and bytes ~= "0 x" and 1 or 0
  if held == 1 then redis.call("ZADD", ends, until_ms, ARGV[at]) end
  reply[#reply + 1] = held
end
return reply
