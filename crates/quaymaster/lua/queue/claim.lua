-- queue.claim: hand out jobs under a lease: what is due again first, then what waits.
--
-- KEYS  1-8 queue   @claim
--       9 request?  string  the ids a repeated request_id got
-- ARGV  1-8 terms  @claim
--       9 keep_ms  int>0   how long a repeated request_id is recognised
-- OUT   "jobs"      next_ms  again  rows:any..; next_ms: -1 when nothing comes by itself, -2 for a request that comes
--                   again; of each that comes again id attempt dying first_failed_ms ended_ms worker left_ms score
--                   payload, then fresh first_id and of each score (priority only) payload
--       "paused"    next_ms  again  rows:any..; the same, of nothing
--       "conflict"
-- COST  O(count log n), at most 1000; payloads read: at most budget and one more

--@include clock
--@include number
--@include replay
--@include queue
--@include queue/record
--@include queue/claim

local request, token = KEYS[9], ARGV[4]
local now_us = clock_us()
local reply = {}
if request then
  local kept = replay_read(request, "claim", "^[#~= ]+$")
  if kept then
    if kept[1] == "conflict" then return kept end
    queue_still(KEYS, 1, token, queue_ids(kept, 1), math.floor(now_us / 1000), reply)
    return reply
  end
end
queue_sound(KEYS, 1, ARGV[1])
local count = queue_claim(KEYS, 1, ARGV, 1, now_us, reply)
if request and count > 0 then replay_keep_all(request, "claim", ARGV[9], queue_claimed(reply, 1)) end
return reply
