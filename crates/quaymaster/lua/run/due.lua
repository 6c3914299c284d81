-- run.due: runs that are silent, or in time to come by the index; forgets those whose state must have expired.
--
-- KEYS  1 runs  zset  runs by last activity
--       2 live  zset  those at work
-- ARGV  1 stale_ms   int>0
--       2 expire_ms  int>0
--       3 count      int>0
-- OUT   "due"  forgotten  known  at_work  rows..; id active_ms of each
-- COST  O(log n + count)

--@include clock
--@include number

local runs, live = KEYS[1], KEYS[2]
local stale_ms, expire_ms, count = ARGV[1], ARGV[2], ARGV[3]

local now_ms = math.floor(clock_us() / 1000)
local before = string.format("%.0f", now_ms - expire_ms)
local old = redis.call("ZRANGEBYSCORE", runs, "-inf", before, "LIMIT", 0, count)
for _, id in ipairs(old) do
  redis.call("ZREM", runs, id)
  redis.call("ZREM", live, id)
end
local answer = { "due", #old, redis.call("ZCARD", runs), redis.call("ZCARD", live) }
before = string.format("%.0f", now_ms - stale_ms)
local ahead = string.format("(%.0f", now_ms + 60000)
for _, found in ipairs({
  redis.call("ZRANGEBYSCORE", live, "-inf", before, "WITHSCORES", "LIMIT", 0, count),
  redis.call("ZRANGEBYSCORE", live, ahead, "+inf", "WITHSCORES", "LIMIT", 0, count),
  redis.call("ZRANGEBYSCORE", runs, ahead, "+inf", "WITHSCORES", "LIMIT", 0, count),
}) do
  for index = 1, #found, 2 do
    answer[#answer + 1], answer[#answer + 2] = found[index], string.format("%.0f", number_score(found[index + 1]))
  end
end
return answer
