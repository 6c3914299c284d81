-- guard.back: give back what a step of enter took, because a later step said no.
--
-- KEYS  1 record?   string  who runs the operation, or what it answered
--       2-5 lock?   @lock
--       6.. limits  any     one per limit
--       + request?  string  the answer kept for a repeated request_id
-- ARGV  1 token           text    what took it
--       2 record_channel  bytes   where those who wait for the record listen; empty without one
--       3 fence_ttl_ms    int>=0  0 without a lock
--       4 lock_channel    bytes   where the next waiter for the lock listens
--       5 taken_ms        int>=0  when it was taken
--       6.. units         @limit
-- OUT   "back"  claim:bytes  lease:bytes; what the record and the lock said; - for one that is not there
-- COST  O(limits), at most 16

--@include clock
--@include number
--@include idempotency
--@include lock
--@include limit/fixed_window
--@include limit/sliding_log
--@include limit/sliding_window
--@include limit/token_bucket
--@include limit/back

local token, record_channel, fence_ttl_ms, taken_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[5]
local count = (#ARGV - 5) / 7
local at = record_channel == "" and 0 or 1
local now_us = clock_us()
local claim, lease, head = "-", "-", nil
if fence_ttl_ms ~= "0" then lock_sound(KEYS[at + 1], KEYS[at + 3], KEYS[at + 4]) end
if at == 1 then claim = idempotency_abandon(KEYS[1], token, math.floor(now_us / 1000)) end
if fence_ttl_ms ~= "0" then
  lease, head = lock_release(KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], KEYS[at + 4], token, fence_ttl_ms, now_us)
  at = at + 4
end
for index = 1, count do limit_back(KEYS[at + index], now_us, ARGV, 7 * index - 1, taken_ms) end
local request = KEYS[at + count + 1]
if request then redis.call("DEL", request) end
if claim == "abandoned" then redis.pcall("PUBLISH", record_channel, claim) end
lock_wake(head, ARGV[4])
return { "back", claim, lease }
