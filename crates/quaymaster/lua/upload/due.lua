-- upload.due: uploads on which the sweep is to act now, and how long until the next one.
--
-- KEYS  1 uploads   zset   uploads by the millisecond the sweep is to act
-- ARGV  1 count     int>0
--       2 skip      int>=0 of those that are due, the first so many
-- OUT   "due"  next_ms  ids:bytes..; next_ms: -1 when there is none
-- COST  O(log n + skip + count)

--@include clock
--@include number

local uploads = KEYS[1]
local count, skip = tonumber(ARGV[1]), tonumber(ARGV[2])

local now_ms = math.floor(clock_us() / 1000)
local answer = { "due", -1 }
local now = string.format("%.0f", now_ms)
for _, id in ipairs(redis.call("ZRANGEBYSCORE", uploads, "-inf", now, "LIMIT", skip, count)) do answer[#answer + 1] = id end
-- So late is no deadline of ours: due as well, behind the others.
local room, before = count - (#answer - 2), math.max(skip - redis.call("ZCOUNT", uploads, "-inf", now), 0)
if room > 0 then
  for _, id in ipairs(redis.call("ZRANGEBYSCORE", uploads, "9007199254740992", "+inf", "LIMIT", before, room)) do
    answer[#answer + 1] = id
  end
end
local first = redis.call("ZRANGEBYSCORE", uploads, string.format("(%.0f", now_ms), "+inf", "WITHSCORES", "LIMIT", 0, 1)
if first[2] then answer[2] = number_score(first[2]) - now_ms end
return answer
