-- upload.release: give a chunk back unshipped; the attempt does not count.
--
-- KEYS  1-8 own  @upload
-- ARGV  1 ttl_ms    int>0
--       2 number    int>=0
--       3 token     text
-- OUT   "released"
--       "lost"
-- COST  O(log n)

--@include clock
--@include number
--@include upload

local ttl_ms, number, token = ARGV[1], ARGV[2], ARGV[3]

local spoiled = upload_sound(KEYS) or upload_spoiled(KEYS, number)
if spoiled then return spoiled end
local ours, attempts, given = upload_ours(KEYS, number, token)
if given then return { "released" } end
if not ours then return { "lost" } end
local now_ms = math.floor(clock_us() / 1000)
redis.call("HDEL", KEYS[6], "")
redis.call("ZADD", KEYS[5], string.format("%.0f", now_ms), number)
redis.call("HSET", KEYS[6], number, string.format("%.0f - %s", math.max(0, attempts - 1), token))
for at = 1, 8 do redis.call("PEXPIRE", KEYS[at], ttl_ms) end
return { "released" }
