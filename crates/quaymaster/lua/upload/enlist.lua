-- upload.enlist: note when the sweep is to look at an upload.
--
-- KEYS  1 uploads   zset   uploads by the millisecond the sweep is to act
-- ARGV  1 id        text
--       2 at_ms     int    the moment, or how long from now when `from_now` is 1
--       3 from_now  int
-- OUT   "enlisted"
-- COST  O(log n)

--@include clock

local uploads = KEYS[1]
local id, at_ms = ARGV[1], tonumber(ARGV[2])
if ARGV[3] == "1" then at_ms = at_ms + math.floor(clock_us() / 1000) end
-- An upload that ends must be able to, also where there is no memory.
redis.call("ZREM", uploads, "")
redis.call("ZADD", uploads, string.format("%.0f", at_ms), id)
return { "enlisted" }
