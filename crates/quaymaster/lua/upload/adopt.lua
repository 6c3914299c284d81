-- upload.adopt: go on with an upload that another program began, once it is in the ledger; its chunks are offered then.
--
-- KEYS  1-8 own  @upload
-- ARGV  1 ttl_ms       int>0
--       2 left_ms      int>=0  how long from now it expires
--       3 sized        text    1 when the size was announced
--       4 node_id      text    as the ledger has it
-- OUT   "adopted"  deadline_ms; by the store's clock
--       "begun"    deadline_ms; it was before
--       "changed"; it is not what was looked at any more
--       "unknown"
-- COST  O(1)

--@include clock
--@include number
--@include upload

local ttl_ms, left_ms, sized, node_id = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local spoiled = upload_sound(KEYS)
if spoiled then return spoiled end
local held = redis.call("HMGET", KEYS[1], "node_id", "status", "created_at")
if not held[2] then return { "unknown" } end
if redis.call("EXISTS", KEYS[2]) == 1 then return { "begun", redis.call("HGET", KEYS[2], "deadline") or "0" } end
local open = held[2] == "PENDING" or held[2] == "UPLOADING"
if held[1] ~= node_id or not open or redis.call("ZCARD", KEYS[7]) > 0 then return { "changed" } end
local now_us = clock_us()
local now_ms = math.floor(now_us / 1000)
local now, ends = string.format("%.0f", now_ms), string.format("%.0f", now_ms + left_ms)
redis.call("HSET", KEYS[2], "deadline", ends, "bytes_received", "0", "bytes_uploaded", "0", "sized", sized,
  "seq", string.format("%.0f", now_us))
-- Counted anew, as the chunks are taken.
redis.call("HSET", KEYS[1], "received_chunks", "0", "uploaded_chunks", "0", "updated_at", now)
if not number_read(held[3] or "") then redis.call("HSET", KEYS[1], "created_at", now) end
for at = 1, 8 do redis.call("PEXPIRE", KEYS[at], ttl_ms) end
return { "adopted", ends }
