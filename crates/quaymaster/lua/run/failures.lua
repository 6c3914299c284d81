-- run.failures: a page of what failed in a run, by last failure.
--
-- KEYS  1 meta       hash  there while the run is
--       2 failures   hash  item: `attempts last_us cut error`
--       3 failed_at  zset  item by last failure, in milliseconds
-- ARGV  1 from_ms  int
--       2 to_ms    text   the first millisecond after, or +inf
--       3 count    int>0
-- OUT   "failures"  failures(item:bytes failed_ms record:bytes)..
--       "missing"
-- COST  O(log n + count)

--@include number

local meta, failures, failed_at = KEYS[1], KEYS[2], KEYS[3]
if redis.call("EXISTS", meta) == 0 then return { "missing" } end
-- What another program put behind all time is nobody's failure.
local to = "(" .. (ARGV[2] == "+inf" and "9007199254740992" or ARGV[2])
local answer = { "failures" }
local found = redis.call("ZRANGEBYSCORE", failed_at, ARGV[1], to, "WITHSCORES", "LIMIT", 0, ARGV[3])
for index = 1, #found, 2 do
  local record = redis.call("HGET", failures, found[index])
  if record then
    local failed_ms = string.format("%.0f", number_score(found[index + 1]))
    answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = found[index], failed_ms, record
  end
end
return answer
