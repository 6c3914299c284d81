-- upload.create: write the state and metadata of a new upload.
--
-- KEYS  1-8 own  @upload
-- ARGV  1 ttl_ms       int>0
--       2 left_ms      int>=0  how long from now it expires
--       3 sized        text    1 when the size was announced
--       4 node_id      text    whose upload it is: another node's is not overwritten
--       5 count        int>=0  how many words of state follow
--       6.. fields     each    of the state, then of the metadata
--           name       text
--           value      text
-- OUT   "created"   deadline_ms; by the store's clock
--       "existing"  deadline_ms  status:bytes; the deadline that it has
--       "taken"
-- COST  O(fields)

--@include clock
--@include number
--@include upload

local ttl_ms, left_ms, sized, node_id, count = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])

local spoiled = upload_sound(KEYS)
if spoiled then return spoiled end
local held = redis.call("HMGET", KEYS[1], "node_id", "status")
if held[1] and held[1] ~= node_id then return { "taken" } end
local now_us = clock_us()
local now_ms = math.floor(now_us / 1000)
local now, ends = string.format("%.0f", now_ms), string.format("%.0f", now_ms + left_ms)
if held[1] then return { "existing", redis.call("HGET", KEYS[2], "deadline") or ends, held[2] or "" } end
redis.call("DEL", KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8])
redis.call("HSET", KEYS[1], "node_id", node_id, "status", "PENDING", "received_chunks", "0", "uploaded_chunks", "0",
  "total_chunks", "0", "is_last_received", "false", "created_at", now, "updated_at", now)
if count > 0 then redis.call("HSET", KEYS[1], unpack(ARGV, 6, 5 + count)) end
if #ARGV > 5 + count then redis.call("HSET", KEYS[8], unpack(ARGV, 6 + count)) end
redis.call("HSET", KEYS[2], "deadline", ends, "bytes_received", "0", "bytes_uploaded", "0", "sized", sized,
  -- Higher than any number before, also when the state was lost and is made anew.
  "seq", string.format("%.0f", now_us))
for _, at in ipairs({ 1, 2, 8 }) do redis.call("PEXPIRE", KEYS[at], ttl_ms) end
return { "created", ends }
