-- lock.renew: begin the lease anew if it is still ours.
--
-- KEYS  1 lock          string  the holder's token; its TTL is the lease
--       2 fence         string  the last fence handed out
--       3 queue         zset    tokens of waiters, by their arrival in microseconds
--       4 alive         hash    until when each waiter must have asked again, in milliseconds
-- ARGV  1 token         text
--       2 ttl_ms        int>0
--       3 fence_ttl_ms  int>0
-- OUT   "ours"  fence  ttl_ms  now_us
--       "lost"
-- COST  O(1)

--@include clock
--@include lock

local lock, fence, queue, alive = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, ttl_ms, fence_ttl_ms = ARGV[1], ARGV[2], ARGV[3]

if redis.call("GET", lock) ~= token then return { "lost" } end
local now_us = clock_us()
local number = lock_commit(lock, fence, queue, alive, token, ttl_ms, fence_ttl_ms, now_us)
return { "ours", string.format("%.0f", number), tonumber(ttl_ms), string.format("%.0f", now_us) }
