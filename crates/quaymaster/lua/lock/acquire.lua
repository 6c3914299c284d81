-- lock.acquire: take the lease, or learn how long its holder has left.
--
-- KEYS  1-4 lock  @lock
-- ARGV  1 token         text    unique per attempt; the same again is the same attempt
--       2 ttl_ms        int>0
--       3 fence_ttl_ms  int>0
--       4 wait          text    "1" to stand in the queue while it is held
-- OUT   "ours"  fence  ttl_ms  now_us
--       "held"  remaining_ms  place  holder:bytes; place: in the queue from 0, -1 when not in it
-- COST  O(log n) of waiters, and O(log n) for each dead waiter dropped, at most 16,000

--@include clock
--@include number
--@include lock

local lock, fence, queue, alive = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, ttl_ms, fence_ttl_ms, wait = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local now_us = clock_us()
local last = lock_fence(fence, 8.9999e15)
local word, left_ms, dead = lock_check(lock, queue, alive, token, now_us)
lock_drop(queue, alive, dead)
if word == "held" then
  local place = wait == "1" and lock_wait(queue, alive, token, now_us) or -1
  return { "held", left_ms, place, redis.call("GET", lock) or "" }
end
local number = lock_commit(lock, fence, last, queue, alive, token, ttl_ms, fence_ttl_ms, now_us)
return { "ours", string.format("%.0f", number), tonumber(ttl_ms), string.format("%.0f", now_us) }
