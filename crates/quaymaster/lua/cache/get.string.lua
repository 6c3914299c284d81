-- cache.get.string: the value, if it is there.
--
-- KEYS  1 entry  string  the value
-- ARGV  none
-- OUT   "hit"   value:any
--       "miss"
-- COST  O(n) of the value

local value = redis.call("GET", KEYS[1])
if value then return { "hit", value } end
return { "miss" }
