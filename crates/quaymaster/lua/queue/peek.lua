-- queue.peek: the items that wait, the next first.
--
-- KEYS  1 items   any   the public list, or zset for a priority queue
-- ARGV  1 order   text  fifo or priority
--       2 count   int>0 at most 1000
--       3 budget  int>0 bytes after which no more are shown
-- OUT   "items"  items:bytes..
-- COST  O(count), O(log n + count) for a priority queue

--@include number
--@include queue
--@include queue/page

local items, count, budget = KEYS[1], ARGV[2] + 0, ARGV[3] + 0
local reply = { "items" }
if ARGV[1] == "fifo" then
  queue_page(items, 0, count, budget, reply)
  return reply
end
local bytes = 0
for at = 0, count - 1 do
  local member = redis.call("ZREVRANGE", items, at, at)[1]
  if not member or bytes >= budget then break end
  reply[#reply + 1] = queue_payload(member)
  bytes = bytes + #member
end
return reply
