-- upload.page: a page of all uploads, those whose moment comes first in front.
--
-- KEYS  1 uploads   zset   uploads by the millisecond the sweep is to act
-- ARGV  1 offset    int>=0
--       2 count     int>0
-- OUT   "page"  uploads(id:bytes at_ms:bytes)..
-- COST  O(log n + count)

--@include number

local uploads = KEYS[1]
local offset, count = tonumber(ARGV[1]), tonumber(ARGV[2])
local answer = { "page" }
local held = redis.call("ZRANGE", uploads, offset, offset + count - 1, "WITHSCORES")
for at = 1, #held, 2 do
  answer[#answer + 1] = held[at]
  answer[#answer + 1] = string.format("%.0f", number_score(held[at + 1]))
end
return answer
