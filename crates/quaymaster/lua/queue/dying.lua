-- queue.dying: what a dead letter is made of; the lease is kept for as long as that takes.
--
-- KEYS  1 jobs      hash   items of claimed jobs
--       2 held      hash   their records
--       3 leases    zset   by the end of their lease
--       4 request?  string the answer kept for a repeated request_id
-- ARGV  1 id        int
--       2 prefix    text   token attempt
--       3 hold_ms   int>0  the lease lives at least so long from now
-- OUT   "dying"     now_us  first_failed_ms  score:bytes  payload:bytes
--       "dead"      0; the request has buried it
--       "retry"     delay_ms; the request has put it back
--       "lost"
--       "conflict"
-- COST  O(log n), and O(n) of the payload

--@include clock
--@include number
--@include replay
--@include queue
--@include queue/record
--@include queue/lease

local jobs, held, leases, request = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id = ARGV[1]
if request then
  local kept = replay_read(request, "nack", "^retry #$", "^dead #$")
  if kept and kept[1] == "dead" then return { "dead", 0 } end
  if kept and kept[1] == "retry" then return { "retry", kept[2] } end
  if kept then return kept end
end
local now_us = clock_us()
local now_ms = math.floor(now_us / 1000)
local ours = queue_ours(held, leases, ARGV[2], ARGV, 1, 1, now_ms)
local payload = ours[1] and redis.call("HGET", jobs, id)
if not payload then return { "lost" } end
local _, _, failed_ms, _, score = queue_record(redis.call("HGET", held, id))
queue_insist(held)
redis.call("ZADD", leases, "GT", string.format("%.0f", now_ms + ARGV[3]), id)
return { "dying", string.format("%.0f", now_us), failed_ms, score, payload }
