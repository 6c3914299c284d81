-- batch.show: what is to be known of one batch but its items.
--
-- KEYS  1 by             string  what it is grouped by
--       2 started_at     string  seconds
--       3 last_activity  string  seconds
--       4 size           string
-- ARGV  none
-- OUT   "shown"      by:bytes  started_at:bytes  last_activity:bytes  size
--       "malformed"  key:bytes
--       "none"
-- COST  O(1)

--@include number

local by, started_at, last_activity, size = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local value = redis.call("GET", by)
if not value then return { "none" } end
local started, count = redis.call("GET", started_at) or "", redis.call("GET", size) or "0"
if not number_read(count) then return { "malformed", size } end
return { "shown", value, started, redis.call("GET", last_activity) or started, count }
