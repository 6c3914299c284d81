-- respell.noted: which keys of a schema have no old name any more.
--
-- KEYS  1 note  string  one per schema
-- ARGV  none
-- OUT   "noted"  digest:bytes; of their patterns, empty for none
-- COST  O(1)

local note = KEYS[1]

return { "noted", redis.call("GET", note) or "" }
