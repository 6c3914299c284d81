-- lock.leave: stop waiting, and wake who is next if the lock is free.
--
-- KEYS  1 lock     string  the holder's token; its TTL is the lease
--       2 queue    zset    tokens of waiters, by their arrival in microseconds
--       3 alive    hash    until when each waiter must have asked again, in milliseconds
-- ARGV  1 token    text
--       2 channel  bytes  where the next waiter listens
-- OUT   "left"
-- COST  O(log n) of waiters, and O(log n) for each dead waiter dropped, at most 16,000

--@include clock
--@include number
--@include lock

local lock, queue, alive = KEYS[1], KEYS[2], KEYS[3]
local token, channel = ARGV[1], ARGV[2]

redis.call("HLEN", alive)
local now_us = clock_us()
redis.call("ZREM", queue, token)
redis.call("HDEL", alive, token)
if redis.call("EXISTS", lock) == 0 then
  local head = lock_next(queue, alive, now_us)
  lock_wake(head, channel)
end
return { "left" }
