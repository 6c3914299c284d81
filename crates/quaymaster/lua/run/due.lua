-- run.due: runs that are silent, or in time to come by the index; forgets those whose state must have expired.
--
-- KEYS  1 runs  zset  runs by last activity
--       2 live  zset  those at work
--       3 kept  zset  those with a time of their own, by its milliseconds
-- ARGV  1 stale_ms   int>0
--       2 expire_ms  int>0
--       3 count      int>0
--       4 skip       int>=0  of those that are silent for so long and kept for longer
-- OUT   "due"  forgotten  kept  known  at_work  runs(id:bytes active_ms)..
-- COST  O(log n + skip + count)

--@include clock
--@include number

local runs, live, kept = KEYS[1], KEYS[2], KEYS[3]
local stale_ms, expire_ms, count, skip = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local now_ms = math.floor(clock_us() / 1000)
local before = string.format("%.0f", now_ms - expire_ms)
local old = redis.call("ZRANGEBYSCORE", runs, "-inf", before, "WITHSCORES", "LIMIT", skip, count)
redis.call("ZCARD", live)
local stay = 0
for index = 1, #old, 2 do
  local id = old[index]
  local ttl_ms = redis.call("ZSCORE", kept, id)
  if ttl_ms and number_score(old[index + 1]) + number_score(ttl_ms) + 60000 > now_ms then
    stay = stay + 1
  else
    redis.call("ZREM", runs, id)
    redis.call("ZREM", live, id)
    redis.call("ZREM", kept, id)
  end
end
local answer = { "due", #old / 2 - stay, stay, redis.call("ZCARD", runs), redis.call("ZCARD", live) }
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
