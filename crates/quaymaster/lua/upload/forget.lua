-- upload.forget: remove every key of an upload that has ended, once its chunks are gone.
--
-- KEYS  1-8 own  @upload
-- ARGV  none
-- OUT   "forgotten"
--       "open"       status:bytes
--       "bytes"      left
-- COST  O(chunks)

--@include number
--@include upload

local spoiled = upload_sound(KEYS)
if spoiled then return spoiled end
local status = redis.call("HGET", KEYS[1], "status") or "EXPIRED"
local ended = status == "COMPLETED" or status == "EXPIRED" or redis.call("HGET", KEYS[2], "aborted") == "1"
if not ended then return { "open", status } end
local left = redis.call("ZCARD", KEYS[5])
if left > 0 then return { "bytes", left } end
redis.call("DEL", KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8])
return { "forgotten" }
