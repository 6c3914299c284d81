-- run.unclaimed: a page of an hour's list of failures, and how often we put each of its ids there ourselves.
--
-- KEYS  1 failed  list  ids that failed in the hour, newest first
--       2 known   hash  id: how often it is there because of us, or was taken over
-- ARGV  1 from  int>=0
--       2 to    int>=0
-- OUT   "page"  items(item:bytes known)..
-- COST  O(from + page)

--@include number

local failed, known = KEYS[1], KEYS[2]
local answer = { "page" }
local items = redis.call("LRANGE", failed, ARGV[1], ARGV[2])
if #items == 0 then return answer end
local counts = redis.call("HMGET", known, unpack(items))
for index, item in ipairs(items) do
  answer[#answer + 1], answer[#answer + 2] = item, string.format("%.0f", number_read(counts[index] or "") or 0)
end
return answer
