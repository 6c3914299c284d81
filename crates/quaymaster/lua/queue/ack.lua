-- queue.ack: jobs are done; only those whose lease is held and lives.
--
-- KEYS  1 jobs      hash   items of claimed jobs
--       2 held      hash   their records
--       3 leases    zset   by the end of their lease
--       4 meta      hash   counters
--       5 request?  string the answer kept for a repeated request_id
-- ARGV  1 keep_ms  int>0    how long a repeated request_id is recognised
--       2.. given  @leases  at most 1000 ids
-- OUT   "acked"     acked  given
--       "conflict"
-- COST  O(ids log n)

--@include clock
--@include number
--@include replay
--@include queue/lease

local request = KEYS[5]
if request then
  local kept = replay_read(request, "ack", "^acked # #[#~= ]*$")
  if kept and kept[1] == "conflict" then return kept end
  -- The record of `ack.claim` goes on with ids.
  if kept then return { "acked", kept[2], kept[3] } end
end
local now_ms = math.floor(clock_us() / 1000)
local acked, given = queue_done(KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV, 2, #ARGV, now_ms)
if request and acked > 0 then replay_keep_all(request, "ack", ARGV[1], { "acked", acked, given }) end
return { "acked", acked, given }
