-- guard.leave: finish or abandon the claim and give the lock back, each if it is still ours.
--
-- KEYS  1 record?   string  who runs the operation, or what it answered
--       2-5 lock?   @lock
--       6 request?  string  the answer kept for a repeated request_id
-- ARGV  1 token           text    what enter gave
--       2 verb            text    finish, abandon, or - without a record
--       3 ttl_ms          int>=0  how long the answer is replayed
--       4 enc             text    - no response, r raw, z zstd, s sealed, t zstd and sealed
--       5 bytes           bytes   the response
--       6 record_channel  bytes   where those who wait for the answer listen
--       7 fence_ttl_ms    int>=0  0 without a lock
--       8 lock_channel    bytes   where the next waiter for the lock listens
--       9 keep_ms         int>0   how long a repeated request_id is recognised
-- OUT   "left"       claim:bytes  lease:bytes  same  enc:bytes  bytes:bytes; what the record and the lock said, -
--                    for one that is not there; same enc bytes as of idempotency.finish
--       "malformed"
--       "conflict"
-- COST  O(n) of the response

--@include clock
--@include number
--@include replay
--@include idempotency
--@include lock

local token, verb, fence_ttl_ms = ARGV[1], ARGV[2], ARGV[7]
local at = verb == "-" and 0 or 1
local request = KEYS[at + (fence_ttl_ms == "0" and 0 or 4) + 1]

-- What is held is ended, whatever was answered before: ids and tokens may both come again. Only where nothing is
-- held any more is the call answered from the record, which belongs to its token and verb.
local op = "leave:" .. verb .. ":" .. token
local kept = request and replay_read(request, op, "^left [%l%-]+ [%l%-]+ #$")
if kept and kept.err then return kept end
local now_us = clock_us()
local now_ms = math.floor(now_us / 1000)
local claim, lease, same, enc, bytes, ended, head = "-", "-", 1, "-", "", false, nil
if fence_ttl_ms ~= "0" then lock_sound(KEYS[at + 1], KEYS[at + 3], KEYS[at + 4]) end
if verb == "finish" then
  claim, same, enc, bytes, ended = idempotency_finish(KEYS[1], token, ARGV[3], ARGV[4], ARGV[5], now_ms)
elseif verb == "abandon" then
  claim = idempotency_abandon(KEYS[1], token, now_ms)
  ended = claim == "abandoned"
end
if fence_ttl_ms ~= "0" then
  lease, head = lock_release(KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], KEYS[at + 4], token, fence_ttl_ms, now_us)
end
if claim == "malformed" then
  lock_wake(head, ARGV[8])
  return { "malformed" }
end
if ended or lease == "released" then
  if request then replay_keep_all(request, op, ARGV[9], { "left", claim, lease, same or 1 }) end
else
  if kept and kept[1] == "conflict" then return kept end
  if kept then
    lease = kept[3]
    if claim ~= "finished" then claim, same = kept[2], kept[4] end
  end
end
if ended then redis.pcall("PUBLISH", ARGV[6], claim) end
lock_wake(head, ARGV[8])
return { "left", claim, lease, same or 1, enc or "-", bytes or "" }
