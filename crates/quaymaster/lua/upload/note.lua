-- upload.note: say why a completion waits, while it does; how long the keys live stays as it is.
--
-- KEYS  1-8 own  @upload
-- ARGV  1 progress  bytes  channel
--       2 reason    text   empty to leave what is said
-- OUT   "noted"
--       "already"
--       "refused"  status:bytes; it is not being completed
--       "unknown"
-- COST  O(chunks) for the counts

--@include clock
--@include number
--@include upload

local progress, reason = ARGV[1], ARGV[2]

local spoiled = upload_sound(KEYS)
if spoiled then return spoiled end
local facts = redis.call("HMGET", KEYS[1], "status", "error_message")
local status = facts[1]
-- Without its other half it is told anew, and nothing is made here that would live for ever.
if not status or redis.call("EXISTS", KEYS[2]) == 0 then return { "unknown" } end
if status ~= "COMPLETING" then return { "refused", status } end
-- What is tried every minute is news once.
if reason == "" or reason == facts[2] then return { "already" } end
local now_ms = math.floor(clock_us() / 1000)
redis.call("HSET", KEYS[1], "error_message", reason)
upload_tell(KEYS, nil, progress, now_ms)
return { "noted" }
