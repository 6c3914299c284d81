-- run.list: a page of runs, the last active in front.
--
-- KEYS  1 runs  zset  runs by last activity
-- ARGV  1 from_ms  text    the newest, or +inf
--       2 to_ms    text    the oldest, or -inf
--       3 skip     int>=0
--       4 count    int>0
-- OUT   "runs"  id  active_ms …
-- COST  O(log n + skip + count)

local runs = KEYS[1]
local answer = redis.call("ZRANGE", runs, ARGV[1], ARGV[2], "BYSCORE", "REV", "LIMIT", ARGV[3], ARGV[4], "WITHSCORES")
table.insert(answer, 1, "runs")
return answer
