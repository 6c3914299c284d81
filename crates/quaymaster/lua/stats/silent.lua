-- stats.silent: instances that have not flushed for a day.
--
-- KEYS  1 instances  zset   by their last flush, in milliseconds
-- ARGV  1 count      int>0
-- OUT   "silent"  names:bytes..
-- COST  O(log n + count)

--@include clock

local instances = KEYS[1]
local count = ARGV[1]

local answer = { "silent" }
local day_ago = string.format("%.0f", math.floor(clock_us() / 1000) - 86400000)
for _, name in ipairs(redis.call("ZRANGEBYSCORE", instances, "-inf", day_ago, "LIMIT", 0, count)) do
  answer[#answer + 1] = name
end
return answer
