-- upload.due: uploads on which the sweep is to act now, and how long until the next one.
--
-- KEYS  1 uploads   zset   uploads by the millisecond the sweep is to act
-- ARGV  1 count     int>0
--       2 skip      int>=0 of those that are due, the first so many
-- OUT   "due"  next_ms  id …   next_ms: -1 when there is none
-- COST  O(log n + skip + count)

--@include clock

local uploads = KEYS[1]
local count, skip = ARGV[1], ARGV[2]

local now_ms = math.floor(clock_us() / 1000)
local answer = { "due", -1 }
for _, id in ipairs(redis.call("ZRANGEBYSCORE", uploads, "-inf", string.format("%.0f", now_ms), "LIMIT", skip, count)) do
  answer[#answer + 1] = id
end
local first = redis.call("ZRANGEBYSCORE", uploads, string.format("(%.0f", now_ms), "+inf", "WITHSCORES", "LIMIT", 0, 1)
if first[2] then answer[2] = math.ceil(tonumber(first[2]) - now_ms) end
return answer
