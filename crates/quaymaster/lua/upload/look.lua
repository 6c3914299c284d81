-- upload.look: which chunks wait to be shipped, for the sweep.
--
-- KEYS  1-8 own  @upload
-- ARGV  1 offset   int>=0
--       2 count    int>0
-- OUT   "look"     status:bytes  aborted  next_ms  waiting  marked  chunks(number:bytes held facts:bytes)..;
--                  marked: chunks that the map calls received; held: 1 for one under a lease that lives
--       "unknown"
-- COST  O(log n + count), and O(chunks) for the map

--@include clock
--@include number
--@include upload

local offset, count = tonumber(ARGV[1]), tonumber(ARGV[2])

local spoiled = upload_numbers(KEYS)
if spoiled then return spoiled end
local status = redis.call("HGET", KEYS[1], "status")
if not status then return { "unknown" } end
local now_ms = math.floor(clock_us() / 1000)
local _, marked = string.gsub(redis.call("GET", KEYS[4]) or "", "r", "")
local answer = { "look", status, redis.call("HGET", KEYS[2], "aborted") == "1" and 1 or 0, -1,
  redis.call("ZCARD", KEYS[5]), marked }
local first = redis.call("ZRANGE", KEYS[5], 0, 0, "WITHSCORES")[2]
if first then answer[4] = math.max(0, number_score(first) - now_ms) end
for _, number in ipairs(redis.call("ZRANGE", KEYS[5], offset, offset + count - 1)) do
  -- A member that is no number is no chunk; the next claim takes it out.
  answer[#answer + 1] = number_read(number) and number or "-"
  answer[#answer + 1] = upload_held(KEYS, number, now_ms) and 1 or 0
  answer[#answer + 1] = redis.call("HGET", KEYS[3], number) or ""
end
return answer
