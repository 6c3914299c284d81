-- event.depth: how many jobs wait in a queue, for a status.
--
-- KEYS  1 items   list    the queue's items, or a zset where it has priorities
-- ARGV  none
-- OUT   "depth"  length
-- COST  O(1)

local items = KEYS[1]

local kind, length = redis.call("TYPE", items).ok, 0
if kind == "list" then length = redis.call("LLEN", items) end
if kind == "zset" then length = redis.call("ZCARD", items) end
return { "depth", length }
