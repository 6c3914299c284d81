-- stats.counts: the counters under some keys, 0 for what is not there.
--
-- KEYS  1.. counters  string  any number of them, which the caller bounds
-- ARGV  none
-- OUT   "counts"  counts:any..
-- COST  O(n)

local answer = { "counts" }
for _, held in ipairs(redis.call("MGET", unpack(KEYS))) do answer[#answer + 1] = held or "0" end
return answer
