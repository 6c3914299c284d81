-- batch.due: which batches are past their deadline, and when the next one will be.
--
-- KEYS  1 open   zset   batch ids by the millisecond they close
-- ARGV  1 count  int>0
--       2 skip   int>=0 of those that are due, the first so many
-- OUT   "due"  next_ms  id …   next_ms: until the next one is due, -1 when none is open
-- COST  O(log n + skip + count)

--@include clock

local open = KEYS[1]
local count, skip = ARGV[1], ARGV[2]

local now_ms = math.floor(clock_us() / 1000)
local answer = { "due", -1 }
for _, id in ipairs(redis.call("ZRANGEBYSCORE", open, "-inf", string.format("%.0f", now_ms), "LIMIT", skip, count)) do
  answer[#answer + 1] = id
end
local first = redis.call("ZRANGEBYSCORE", open, string.format("(%.0f", now_ms), "+inf", "WITHSCORES", "LIMIT", 0, 1)
if first[2] then answer[2] = math.ceil(tonumber(first[2]) - now_ms) end
return answer
