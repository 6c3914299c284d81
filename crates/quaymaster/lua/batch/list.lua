-- batch.list: a page of open batches, those that close first in front.
--
-- KEYS  1 open    zset    batch ids by the millisecond they close
-- ARGV  1 offset  int>=0
--       2 count   int>0
-- OUT   "open"  now_us  batches(id:bytes closes_ms)..
-- COST  O(log n + offset + count)

--@include clock
--@include number

local open = KEYS[1]
local offset, count = tonumber(ARGV[1]), tonumber(ARGV[2])

local answer = { "open", string.format("%.0f", clock_us()) }
local held = redis.call("ZRANGE", open, offset, offset + count - 1, "WITHSCORES")
for index = 1, #held, 2 do
  -- A deadline that nobody gave is past: the next sweep queues the batch.
  local closes_ms = tonumber(held[index + 1])
  if closes_ms < 0 or closes_ms >= 9007199254740992 then closes_ms = 0 end
  answer[#answer + 1], answer[#answer + 2] = held[index], string.format("%.0f", closes_ms)
end
return answer
