-- upload.missing: the bytes of a claimed chunk are gone; the client is asked for them again.
--
-- KEYS  1-8 own  @upload
--       9 chunk  string   where the bytes were
-- ARGV  1 ttl_ms    int>0
--       2 progress  bytes   channel
--       3 number    int>=0
--       4 token     text
-- OUT   "missing"
--       "lost"
-- COST  O(log n), and O(chunks) for the counts

--@include clock
--@include number
--@include upload
--@include upload/lose

local ttl_ms, progress, number, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local spoiled = upload_sound(KEYS) or upload_spoiled(KEYS, number)
if spoiled then return spoiled end
local mark, ours = upload_mark(KEYS, number), upload_ours(KEYS, number, token)
-- It is asked for already, whoever has said so.
if mark == "m" then return { "missing" } end
if mark ~= "r" or not ours then return { "lost" } end
local now_ms = math.floor(clock_us() / 1000)
redis.call("DEL", KEYS[9])
upload_lose(KEYS, number)
upload_tell(KEYS, ttl_ms, progress, now_ms)
return { "missing" }
