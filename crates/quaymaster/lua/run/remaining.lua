-- run.remaining: which of these items are not processed yet.
--
-- KEYS  1 state      hash  documented fields
--       2 meta       hash  there while the run is ours
--       3 processed  set   items done
-- ARGV  1.. items  text  at most a thousand
-- OUT   "remaining"  indexes..; counted from 1
--       "missing"
--       "foreign"
-- COST  O(items)

if redis.call("HEXISTS", KEYS[2], "active_us") == 0 then
  if redis.call("EXISTS", KEYS[1]) == 0 then return { "missing" } end
  return { "foreign" }
end
local answer = { "remaining" }
for index = 1, #ARGV do
  if redis.call("SISMEMBER", KEYS[3], ARGV[index]) == 0 then answer[#answer + 1] = index end
end
return answer
