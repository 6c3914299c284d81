-- upload.shorten: bring a deadline nearer that the store's clock, or an older build, put too far away.
--
-- KEYS  1 work         hash
-- ARGV  1 deadline_ms  int     the one it was seen with
--       2 left_ms      int>=0  how long from now it expires
-- OUT   "shortened"  deadline_ms
--       "kept"; it has another one by now
-- COST  O(1)

--@include clock

local work, deadline_ms, left_ms = KEYS[1], ARGV[1], tonumber(ARGV[2])
if redis.call("HGET", work, "deadline") ~= deadline_ms then return { "kept" } end
local ends = string.format("%.0f", math.floor(clock_us() / 1000) + left_ms)
redis.call("HSET", work, "deadline", ends)
return { "shortened", ends }
