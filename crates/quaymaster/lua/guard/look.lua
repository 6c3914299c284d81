-- guard.look: whether the lock could be had now.
--
-- KEYS  1 lock    string  the holder's token; its TTL is the lease
--       2 queue   zset    tokens of waiters, by their arrival in microseconds
--       3 alive   hash    until when each waiter must have asked again, in milliseconds
-- ARGV  1 token   text    who asks
-- OUT   "free"  0
--       "ours"  remaining_ms
--       "held"  remaining_ms
-- COST  O(1), and O(n) of dead waiters in front, at most 16,000

--@include clock
--@include number
--@include lock

local lock, queue, alive = KEYS[1], KEYS[2], KEYS[3]
local token = ARGV[1]
local word, left_ms = lock_check(lock, queue, alive, token, clock_us())
return { word, left_ms }
