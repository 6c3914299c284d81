-- upload.drop: remove the bytes of chunks that will never be shipped, of an upload that has ended.
--
-- KEYS  1-8 own     @upload
--       9.. chunks  string   the bytes of each chunk named
-- ARGV  1.. numbers  int  at most 500
-- OUT   "dropped"  left
--       "open"     status:bytes
-- COST  O(numbers log n)

--@include number
--@include upload

local spoiled = upload_sound(KEYS)
if spoiled then return spoiled end
local status = redis.call("HGET", KEYS[1], "status") or "EXPIRED"
local ended = status == "COMPLETED" or status == "EXPIRED" or redis.call("HGET", KEYS[2], "aborted") == "1"
if not ended then return { "open", status } end
for at = 1, #ARGV do
  redis.call("DEL", KEYS[8 + at])
  redis.call("ZREM", KEYS[5], ARGV[at])
end
return { "dropped", redis.call("ZCARD", KEYS[5]) }
