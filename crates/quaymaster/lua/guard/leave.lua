-- guard.leave: finish or abandon the claim and give the lock back, each if it is still ours.
--
-- KEYS  1.. parts          any    the record, if any; lock, fence, queue, alive, if any; request?
-- ARGV  1 token            text   what enter gave
--       2 verb             text   finish, abandon, or - without a record
--       3 ttl_ms           int>=0 how long the answer is replayed
--       4 enc              text   - no response, r raw, z zstd, s sealed, t zstd and sealed
--       5 bytes            bytes  the response
--       6 record_channel   text   where those who wait for the answer listen
--       7 fence_ttl_ms     int>=0 0 without a lock
--       8 lock_channel     text   where the next waiter for the lock listens
--       9 keep_ms          int>0  how long a repeated request_id is recognised
-- OUT   "left"       what the record and the lock said; - for one that is not there
--       "malformed"
--       "conflict"
-- COST  O(n) of the response

--@include clock
--@include replay
--@include idempotency
--@include lock

local token, verb, fence_ttl_ms = ARGV[1], ARGV[2], ARGV[7]
local at = verb == "-" and 0 or 1
local request = KEYS[at + (fence_ttl_ms == "0" and 0 or 4) + 1]

if request then
  local kept = replay_read(request, "leave")
  if kept then return kept end
end
local now_us = clock_us()
local now_ms = math.floor(now_us / 1000)
local claim, lease = "-", "-"
if verb == "finish" then
  claim = idempotency_finish(KEYS[1], token, ARGV[3], ARGV[4], ARGV[5], now_ms, ARGV[6])
elseif verb == "abandon" then
  claim = idempotency_abandon(KEYS[1], token, now_ms, ARGV[6])
end
if claim == "malformed" then return { "malformed" } end
if fence_ttl_ms ~= "0" then
  lease = lock_release(KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], KEYS[at + 4], token, fence_ttl_ms, now_us, ARGV[8])
end
-- An answer that changed nothing is not kept.
if request and (lease == "released" or claim == "finished" or claim == "abandoned") then
  replay_keep_all(request, "leave", ARGV[9], { "left", claim, lease })
end
return { "left", claim, lease }
