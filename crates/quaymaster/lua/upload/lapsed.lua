-- upload.lapsed: name what was given up on its way in, so that what was staged under it is removed.
--
-- KEYS  1-3 flight  @flight
-- ARGV  1 count             int>0   at most 1000
--       2 lease_ms          int>0   how long the asker may take
-- OUT   "lapsed"  names:bytes..
-- COST  O(count log n)

--@include clock
--@include number
--@include upload/flight

local names, ends, sum = KEYS[1], KEYS[2], KEYS[3]
local count, lease_ms = tonumber(ARGV[1]), tonumber(ARGV[2])

local spoiled = flight_sound(names, ends, sum)
if spoiled then return spoiled end
local now_ms = math.floor(clock_us() / 1000)
flight_prune(names, ends, sum, now_ms, 1000)
local reply = { "lapsed" }
local due = redis.call("ZRANGEBYSCORE", ends, flight_beyond(0), flight_beyond(now_ms), "LIMIT", 0, count)
for _, name in ipairs(due) do
  -- Told again to the next one, unless `upload.back` takes it away before.
  redis.call("ZADD", ends, flight_beyond(now_ms + lease_ms), name)
  reply[#reply + 1] = name
end
return reply
