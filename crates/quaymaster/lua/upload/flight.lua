-- upload.flight: a page of what is in flight, what ends first in front.
--
-- KEYS  1-3 flight  @flight
-- ARGV  1 offset            int>=0
--       2 count             int>=0
-- OUT   "flight"  total  names  chunks(name:bytes taken)..; taken: 1 for a chunk that is taken
-- COST  O(log n + count)

--@include number
--@include upload/flight

local names, ends, sum = KEYS[1], KEYS[2], KEYS[3]
local offset, count = tonumber(ARGV[1]), tonumber(ARGV[2])
local answer = { "flight", flight_sum(sum), redis.call("HLEN", names) }
if count > 0 then
  for _, name in ipairs(redis.call("ZRANGE", ends, offset, offset + count - 1)) do
    answer[#answer + 1] = name
    answer[#answer + 1] = string.find(redis.call("HGET", names, name) or "", " c", 1, true) and "1" or "0"
  end
end
return answer
