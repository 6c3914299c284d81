-- upload.unstage: remove bytes that were on their way in.
--
-- KEYS  1 staging   string
-- ARGV  none
-- OUT   "gone"  count
-- COST  O(1)

local staging = KEYS[1]
return { "gone", redis.call("DEL", staging) }
