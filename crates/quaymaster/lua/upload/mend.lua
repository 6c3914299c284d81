-- upload.mend: put every chunk that the map calls received into the schedule, and nothing else.
--
-- KEYS  1-8 own  @upload
-- ARGV  1 ttl_ms    int>0
-- OUT   "mended"  added  removed
-- COST  O(chunks log n), at most 10,000

--@include clock
--@include number
--@include upload

local ttl_ms = ARGV[1]

local spoiled = upload_sound(KEYS)
if spoiled then return spoiled end
local now = string.format("%.0f", math.floor(clock_us() / 1000))
local added, removed = 0, 0
for at in string.gmatch(redis.call("GET", KEYS[4]) or "", "()r") do
  added = added + redis.call("ZADD", KEYS[5], "NX", now, string.format("%.0f", at - 1))
end
for _, number in ipairs(redis.call("ZRANGE", KEYS[5], 0, -1)) do
  if not number_read(number) or upload_mark(KEYS, number) ~= "r" then removed = removed + redis.call("ZREM", KEYS[5], number) end
end
for at = 1, 8 do redis.call("PEXPIRE", KEYS[at], ttl_ms) end
return { "mended", added, removed }
