-- queue.claim: hand out jobs under a lease: what is due again first, then what waits.
--
-- KEYS  1.. items      any    the public list, or zset for a priority queue
--       2 meta         hash   switches and counters
--       3 stamps       list   when which push came
--       4 overflow     list   takes items too large to deliver
--       5 jobs         hash   items of claimed and delayed jobs
--       6 held         hash   their records
--       7 delayed      zset   delayed jobs and retries, by when they are due
--       8 leases       zset   claimed jobs, by the end of their lease
--       9 request?     string the ids a repeated request_id got
-- ARGV  1.. order      text   fifo or priority
--       2 count        int>0  at most 1000
--       3 lease_ms     int>0
--       4 token        text   unique per claim; a repeated request_id derives it anew
--       5 worker       text   who claims, - for none
--       6 max_attempts int>0
--       7 budget       int>0  bytes of payloads after which no more are handed out
--       8 largest      int>0  bytes of an item that can be delivered
--       9 keep_ms      int>0  how long a repeated request_id is recognised
-- OUT   "jobs"    next_ms (-1: nothing comes by itself, -2: a request that comes again)  again, nine each: id attempt dying first_failed_ms ended_ms worker left_ms score payload;
--                 fresh  first_id, each: score (priority only) payload
--       "paused"  -1  0  0  0
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
  local kept = replay_read(request, "claim", "^[#~ ]+$")
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
