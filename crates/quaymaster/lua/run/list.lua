-- run.list: a page of runs, the last active in front.
--
-- KEYS  1 runs  zset  runs by last activity
-- ARGV  1 from_ms  text    the newest, or +inf
--       2 to_ms    word    the oldest, or -inf
--       3 skip     int>=0
--       4 count    int>0
-- OUT   "runs"  runs(id:bytes active_ms)..
-- COST  O(log n + skip + count)

--@include number

local runs = KEYS[1]
-- What another program put in time to come, or before there was time, is no run's last activity: a sweep mends it.
local beyond, to = "(" .. ARGV[1], tonumber(ARGV[2]) or 0
if ARGV[1] == "+inf" then beyond = "9007199254740992" end
if to < 0 then to = 0 end
-- By place, not by score: `ZRANGE … BYSCORE REV` is not known to Redis 6.0.
local first = redis.call("ZCOUNT", runs, beyond, "+inf") + ARGV[3]
local last = first + ARGV[4] - 1
local answer = { "runs" }
local held = redis.call("ZREVRANGE", runs, string.format("%.0f", first), string.format("%.0f", last), "WITHSCORES")
for index = 1, #held, 2 do
  if tonumber(held[index + 1]) < to then break end
  answer[#answer + 1], answer[#answer + 2] = held[index], string.format("%.0f", number_score(held[index + 1]))
end
return answer
