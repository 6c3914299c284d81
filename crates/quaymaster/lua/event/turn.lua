-- event.turn: whether this node publishes the status of this interval, and what programs reported for it.
--
-- KEYS  1 turn      string  there while the interval lasts
--       2 reported  hash    name to "<until_ms> <json>"
-- ARGV  1 every_ms  int>0
-- OUT   "ours"    now_us  reported(name:bytes json:bytes)..
--       "theirs"  left_ms
-- COST  O(n) of the names reported

--@include clock
--@include number

local turn, reported = KEYS[1], KEYS[2]
local every_ms = ARGV[1]

local now_us = clock_us()
redis.call("HLEN", reported)
if not redis.call("SET", turn, string.format("%.0f", now_us), "NX", "PX", every_ms) then
  local left_ms = redis.call("PTTL", turn)
  if left_ms < 0 then
    -- A turn without an end would be nobody's for ever.
    redis.call("PEXPIRE", turn, every_ms)
    left_ms = tonumber(every_ms)
  end
  return { "theirs", left_ms }
end
local answer = { "ours", string.format("%.0f", now_us) }
local held, now_ms = redis.call("HGETALL", reported), math.floor(now_us / 1000)
for index = 1, #held, 2 do
  local until_ms, json = string.match(held[index + 1], "^(%d+) (.*)$")
  until_ms = number_read(until_ms) or 0
  -- A value counts for a day at most: one that counts longer is not ours.
  if until_ms > now_ms and until_ms <= now_ms + 86400000 then
    answer[#answer + 1] = held[index]
    answer[#answer + 1] = json
  end
end
return answer
