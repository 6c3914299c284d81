-- batch.due: which batches are past their deadline, or have one that nobody gave them, and when the next one is due.
--
-- KEYS  1 open   zset   batch ids by the millisecond they close
-- ARGV  1 count  int>0
--       2 skip   int>=0 of those that are due, the first so many
--       3 far_ms int>0  a deadline further away than this is none that Quaymaster gave
-- OUT   "due"  next_ms  ids:bytes..; next_ms: until the next one is due, -1 when none is open
-- COST  O(log n + skip + count)

--@include clock

local open = KEYS[1]
local count, skip, far_ms = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local now_ms = math.floor(clock_us() / 1000)
local answer, now, far = { "due", -1 }, string.format("%.0f", now_ms), string.format("%.0f", now_ms + far_ms)
for _, id in ipairs(redis.call("ZRANGEBYSCORE", open, "-inf", now, "LIMIT", skip, count)) do answer[#answer + 1] = id end
-- Behind them those whose deadline is none; `skip` counts both.
if #answer - 2 < count then
  local before = math.max(skip - redis.call("ZCOUNT", open, "-inf", now), 0)
  local room = count - (#answer - 2)
  for _, id in ipairs(redis.call("ZRANGEBYSCORE", open, "(" .. far, "+inf", "LIMIT", before, room)) do
    answer[#answer + 1] = id
  end
end
local first = redis.call("ZRANGEBYSCORE", open, "(" .. now, far, "WITHSCORES", "LIMIT", 0, 1)
if first[2] then answer[2] = math.ceil(tonumber(first[2]) - now_ms) end
return answer
