-- cache.exists: whether there is an entry.
--
-- KEYS  1 entry  any  the value
-- ARGV  none
-- OUT   "present"
--       "absent"
-- COST  O(1)

if redis.call("EXISTS", KEYS[1]) == 1 then return { "present" } end
return { "absent" }
