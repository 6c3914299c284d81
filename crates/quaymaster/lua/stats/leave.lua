-- stats.leave: forget instances that have not flushed for a day, with their counters.
--
-- KEYS  1 instances   zset    by their last flush, in milliseconds
--       2.. requests  string  one per instance
-- ARGV  1.. names  text  of the instances, in the order of their keys
-- OUT   "left"  count
-- COST  O(n log m) of those named and all

--@include clock

local instances = KEYS[1]
local day_ago_ms = math.floor(clock_us() / 1000) - 86400000
local left = 0
for index = 1, #ARGV do
  local last_ms = tonumber(redis.call("ZSCORE", instances, ARGV[index]) or "")
  -- One that flushed since it was listed stays.
  if last_ms and last_ms <= day_ago_ms then
    redis.call("ZREM", instances, ARGV[index])
    redis.call("DEL", KEYS[index + 1])
    left = left + 1
  end
end
return { "left", left }
