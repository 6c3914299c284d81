-- upload.reopen: go on with an upload that failed: every attempt begins anew, and nobody holds a chunk any more.
--
-- KEYS  1-8 own  @upload
-- ARGV  1 ttl_ms        int>0
--       2 progress      bytes   channel
--       3 left_ms       int     how long from now it expires, -1 to keep its deadline
--       4 multipart_id  text    the new one, empty to keep it
--       5 all           text    1 when every durable chunk is to be sent again
--       6.. numbers     int     durable chunks to be sent again
-- OUT   "reopened"  waiting  durable  total  complete  deadline_ms
--       "refused"   status:bytes  error:bytes
--       "unknown"
-- COST  O(chunks), at most 10,000

--@include clock
--@include number
--@include upload
--@include upload/lose

local ttl_ms, progress, left_ms, multipart_id, all = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5] == "1"

local spoiled = upload_sound(KEYS)
if spoiled then return spoiled end
local facts = redis.call("HMGET", KEYS[1], "status", "error_message")
local status = facts[1]
if not status then return { "unknown" } end
local open = status ~= "COMPLETED" and status ~= "EXPIRED" and redis.call("HGET", KEYS[2], "aborted") ~= "1"
if not open then return { "refused", status, facts[2] or "" } end
local now_ms = math.floor(clock_us() / 1000)
local lost = {}
for at = 6, #ARGV do lost[#lost + 1] = ARGV[at] end
if all then
  lost = {}
  for at in string.gmatch(redis.call("GET", KEYS[4]) or "", "()d") do lost[#lost + 1] = string.format("%.0f", at - 1) end
end
for _, number in ipairs(lost) do
  spoiled = upload_spoiled(KEYS, number)
  if spoiled then return spoiled end
end
for _, number in ipairs(lost) do
  if upload_mark(KEYS, number) == "d" then upload_lose(KEYS, number) end
end
redis.call("DEL", KEYS[6])
local waiting = redis.call("ZRANGE", KEYS[5], 0, -1)
for _, number in ipairs(waiting) do redis.call("ZADD", KEYS[5], string.format("%.0f", now_ms), number) end
redis.call("HDEL", KEYS[1], "error_message")
redis.call("HSET", KEYS[1], "status", redis.call("STRLEN", KEYS[4]) > 0 and "UPLOADING" or "PENDING")
if multipart_id ~= "" then redis.call("HSET", KEYS[1], "s3_upload_id", multipart_id) end
if left_ms >= 0 then redis.call("HSET", KEYS[2], "deadline", string.format("%.0f", now_ms + left_ms)) end
local _, durable, total, complete = upload_tell(KEYS, ttl_ms, progress, now_ms)
local ends = redis.call("HGET", KEYS[2], "deadline") or "0"
return { "reopened", #waiting, durable, total, complete, ends }
