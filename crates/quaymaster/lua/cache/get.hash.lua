-- cache.get.hash: the fields, if there are any.
--
-- KEYS  1 entry  hash  the fields
-- ARGV  none
-- OUT   "hit"   fields:any; a table: field, value, … in no order
--       "miss"
-- COST  O(n) fields

local fields = redis.call("HGETALL", KEYS[1])
if #fields > 0 then return { "hit", fields } end
return { "miss" }
