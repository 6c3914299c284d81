-- queue.pressure: how full the queue is, and what it has done.
--
-- KEYS  1 items     any   the public list, or zset for a priority queue
--       2 meta      hash  switches and counters
--       3 stamps    list  when which push came
--       4 overflow  list  items moved out of a full queue
--       5 dead      list  dead letters
--       6 delayed   zset  delayed jobs and retries
--       7 leases    zset  claimed jobs
-- ARGV  1 order     text  fifo or priority
-- OUT   "pressure"  length  leased  delayed  dead  overflow  oldest_ms  paused  pushed  acked  retried
--                   expired  buried  redriven  overflowed  dropped; oldest_ms: -1 when unknown
-- COST  O(log n) of some thousand stamps; O(log n) for a priority queue

--@include clock
--@include number
--@include queue
--@include queue/age

local items, meta = KEYS[1], KEYS[2]
local now_ms = math.floor(clock_us() / 1000)
local counters = redis.call("HMGET", meta, "paused", "pushed", "acked", "retried", "expired", "dead", "redriven",
  "overflowed", "dropped", "postponed")
for index = 1, 10 do counters[index] = number_read(counters[index]) or 0 end
local length = queue_length(items, ARGV[1])
local oldest = -1
if length > 0 then
  if ARGV[1] == "fifo" then
    oldest = queue_age_list(KEYS[3], counters[2] - length + 1, now_ms)
  else
    oldest = queue_age_zset(items, now_ms)
  end
end
-- What came back from a worker that failed or died waits too, once it is due.
local due = tonumber(redis.call("ZRANGE", KEYS[6], 0, 0, "WITHSCORES")[2])
if due and due > 0 and due <= now_ms then oldest = math.max(oldest, math.floor(now_ms - due)) end
counters[2] = counters[2] + table.remove(counters)
return { "pressure", length, redis.call("ZCARD", KEYS[7]), redis.call("ZCARD", KEYS[6]), redis.call("LLEN", KEYS[5]),
  redis.call("LLEN", KEYS[4]), oldest, unpack(counters) }
