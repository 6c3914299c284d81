-- queue.ack.claim: jobs are done, and the next are handed out in the same step.
--
-- KEYS  1-8 queue   @claim
--       9 request?  string  the answer kept for a repeated request_id
-- ARGV  1-8 terms   @claim
--       9 keep_ms   int>0    how long a repeated request_id is recognised
--       10.. given  @leases  at most 1000 ids
-- OUT   "acked"     acked  given  claim:any..; then what queue.claim answers
--       "conflict"
-- COST  O((ids + count) log n), at most 1000 each

--@include clock
--@include number
--@include replay
--@include queue
--@include queue/lease
--@include queue/record
--@include queue/claim

local request, token = KEYS[9], ARGV[4]
local now_us = clock_us()
local now_ms = math.floor(now_us / 1000)
local reply = { "acked", 0, 0 }
if request then
  local kept = replay_read(request, "ack", "^acked # #[#~= ]*$")
  if kept then
    if kept[1] == "conflict" then return kept end
    reply[2], reply[3] = kept[2], kept[3]
    queue_still(KEYS, 1, token, queue_ids(kept, 4), now_ms, reply)
    return reply
  end
end
queue_sound(KEYS, 1, ARGV[1])
reply[2], reply[3] = queue_done(KEYS[5], KEYS[6], KEYS[8], KEYS[2], ARGV, 10, #ARGV, now_ms)
local count = queue_claim(KEYS, 1, ARGV, 1, now_us, reply)
if request and (reply[2] > 0 or count > 0) then
  replay_keep_all(request, "ack", ARGV[9], { "acked", reply[2], reply[3], unpack(queue_claimed(reply, 4)) })
end
return reply
