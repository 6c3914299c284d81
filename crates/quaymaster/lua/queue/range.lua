-- queue.range: the items of a priority queue between two scores, the lowest score first.
--
-- KEYS  1 items   zset   what waits
-- ARGV  1 min     text   the lowest score, or -inf
--       2 max     text   the highest, or +inf
--       3 offset  int>=0 how many of them are passed over
--       4 count   int>0  at most 1000
--       5 budget  int>0  bytes after which no more are shown
-- OUT   "items"  length  items(item:bytes score:bytes)..; length: how many are between the two
-- COST  O(log n + count)

--@include number
--@include queue

local items, min, max = KEYS[1], ARGV[1], ARGV[2]
local length = redis.call("ZCOUNT", items, min, max)
local first = min == "-inf" and 0 or redis.call("ZCOUNT", items, "-inf", "(" .. min)
local reply, bytes, step = { "items", length }, 0, 1
local at, last = first + ARGV[3], first + math.min(length, ARGV[3] + ARGV[4]) - 1
while at <= last and bytes < ARGV[5] + 0 do
  local upto = math.min(at + step - 1, last)
  local got = redis.call("ZRANGE", items, at, upto, "WITHSCORES")
  for index = 1, #got, 2 do
    if bytes >= ARGV[5] + 0 then break end
    reply[#reply + 1], reply[#reply + 2] = queue_payload(got[index]), got[index + 1]
    bytes = bytes + #got[index]
  end
  at, step = upto + 1, math.min(step * 4, 128)
end
return reply
