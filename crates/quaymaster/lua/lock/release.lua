-- lock.release: give the lease back if it is still ours, and wake who is next.
--
-- KEYS  1-4 lock    @lock
--       5 request?  string  the answer kept for a repeated request_id
-- ARGV  1 token         text
--       2 fence_ttl_ms  int>0
--       3 channel       bytes  where the next waiter listens
--       4 keep_ms       int>0  how long a repeated request_id is recognised
-- OUT   "released"
--       "lost"
--       "conflict"
-- COST  O(1), and O(log n) for each dead waiter dropped, at most 16,000

--@include clock
--@include number
--@include replay
--@include lock

local lock, fence, queue, alive, request = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, fence_ttl_ms, channel, keep_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

-- What is held is given back, whatever was answered before: ids and tokens may both come again. Only a lease that
-- is gone is answered from the record, which belongs to its token.
local op = "release:" .. token
local kept = request and replay_read(request, op, "^released$")
if kept and kept.err then return kept end
local word, head = lock_release(lock, fence, queue, alive, token, fence_ttl_ms, clock_us())
if request then
  if word ~= "released" then return kept or { word } end
  replay_keep_all(request, op, keep_ms, { word })
end
lock_wake(head, channel)
return { word }
