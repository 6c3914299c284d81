-- queue.pause: claims get nothing from now on, or get jobs again.
--
-- KEYS  1 meta    hash  switches and counters
-- ARGV  1 paused  text  1 or 0
-- OUT   "paused"  paused
-- COST  O(1)

--@include number
--@include queue

queue_insist(KEYS[1])
redis.call("HSET", KEYS[1], "paused", ARGV[1])
return { "paused", ARGV[1] + 0 }
