-- stats.names: a page of endpoints or instances, those used last in front.
--
-- KEYS  1 names   zset    by last use, in milliseconds
-- ARGV  1 offset  int>=0
--       2 count   int>0
-- OUT   "names"  names(name:bytes last_ms)..
-- COST  O(log n + offset + count)

--@include number

local names = KEYS[1]
local offset, count = tonumber(ARGV[1]), tonumber(ARGV[2])

local answer = { "names" }
local held = redis.call("ZREVRANGE", names, offset, offset + count - 1, "WITHSCORES")
for index = 1, #held, 2 do
  answer[#answer + 1], answer[#answer + 2] = held[index], string.format("%.0f", number_score(held[index + 1]))
end
return answer
