-- run.list: a page of runs, the last active in front.
--
-- KEYS  1 runs  zset  runs by last activity
-- ARGV  1 from_ms  text    the newest, or +inf
--       2 to_ms    word    the oldest, or -inf
--       3 skip     int>=0
--       4 count    int>0
-- OUT   "runs"  rows..; id active_ms of each
-- COST  O(log n + skip + count)

--@include number

local runs = KEYS[1]
-- What another program put in time to come, or before there was time, is no run's last activity: a sweep mends it.
local from, to = ARGV[1], ARGV[2]
if from == "+inf" then from = "(9007199254740992" end
if to == "-inf" then to = "0" end
local answer = { "runs" }
local held = redis.call("ZRANGE", runs, from, to, "BYSCORE", "REV", "LIMIT", ARGV[3], ARGV[4], "WITHSCORES")
for index = 1, #held, 2 do
  answer[#answer + 1], answer[#answer + 2] = held[index], string.format("%.0f", number_score(held[index + 1]))
end
return answer
