-- queue.purge: the oldest dead letters are removed.
--
-- KEYS  1 dead   list   dead letters
-- ARGV  1 count  int>0  at most 10,000
-- OUT   "removed"  count
-- COST  O(count)

local length = redis.call("LLEN", KEYS[1])
redis.call("LTRIM", KEYS[1], ARGV[1], -1)
return { "removed", math.min(length, ARGV[1] + 0) }
