-- queue.nack: a job failed and comes again after a delay; only if its lease is held and lives.
--
-- KEYS  1 held      hash   records of claimed jobs
--       2 leases    zset   by the end of their lease
--       3 delayed   zset   by when they are due
--       4 meta      hash   counters
--       5 request?  string the answer kept for a repeated request_id
-- ARGV  1 id        int
--       2 prefix    text    token attempt
--       3 delay_ms  int>=0
--       4 keep_ms   int>0   how long a repeated request_id is recognised
-- OUT   "retry"     delay_ms
--       "dead"      0; kept for a request that buried the job
--       "lost"      0
--       "conflict"
-- COST  O(log n)

--@include clock
--@include number
--@include replay
--@include queue
--@include queue/lease
--@include queue/record
--@include queue/back

local held, leases, delayed, meta, request = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local delay_ms = ARGV[3] + 0
if request then
  local kept = replay_read(request, "nack", "^retry #$", "^dead #$")
  if kept then return kept end
end
local now_ms = math.floor(clock_us() / 1000)
local ours = queue_ours(held, leases, ARGV[2], ARGV, 1, 1, now_ms)
redis.call("ZCARD", delayed)
redis.call("HLEN", meta)
if #ours == 0 then return { "lost", 0 } end
queue_back(held, leases, delayed, ours, now_ms, delay_ms, 0)
queue_count(meta, "retried", 1)
if request then replay_keep_all(request, "nack", ARGV[4], { "retry", delay_ms }) end
-- "dead" is what queue.bury keeps.
return { "retry", delay_ms }
