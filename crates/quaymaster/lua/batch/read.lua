-- batch.read: all there is to queue of one batch.
--
-- KEYS  1 by             string  what it is grouped by
--       2 items          string  a JSON list
--       3 started_at     string  seconds
-- ARGV  none
-- OUT   "read"  now_us  by:bytes  items:bytes  started_at:bytes
--       "none"
-- COST  O(n) of the list

--@include clock

local by, items, started_at = KEYS[1], KEYS[2], KEYS[3]

local list = redis.call("GET", items)
if not list then return { "none" } end
local now = string.format("%.0f", clock_us())
return { "read", now, redis.call("GET", by) or "", list, redis.call("GET", started_at) or "" }
