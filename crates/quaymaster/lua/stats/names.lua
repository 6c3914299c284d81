-- stats.names: a page of endpoints or instances, those used last in front.
--
-- KEYS  1 names   zset    by last use, in milliseconds
-- ARGV  1 offset  int>=0
--       2 count   int>0
-- OUT   "names"  name  last_ms …
-- COST  O(log n + offset + count)

local names = KEYS[1]
local offset, count = tonumber(ARGV[1]), tonumber(ARGV[2])

local answer = { "names" }
for _, word in ipairs(redis.call("ZREVRANGE", names, offset, offset + count - 1, "WITHSCORES")) do
  answer[#answer + 1] = word
end
return answer
