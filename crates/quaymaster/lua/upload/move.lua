-- upload.move: change the status, if it is one that may become the other.
--
-- KEYS  1-8 own  @upload
-- ARGV  1 ttl_ms    int>0  how long the keys live from now on
--       2 progress  bytes  channel
--       3 to        text   the new status
--       4 from      text   the statuses it may come from, each between commas
--       5 needs     text   `all` when every chunk must be durable, else `-`
--       6 aborted   text   1 when nothing can follow
--       7.. fields  each   for the state
--           name    text
--           value   text
-- OUT   "moved"       status:bytes; it had
--       "already"     status:bytes
--       "refused"     status:bytes  error:bytes
--       "incomplete"  durable  total
--       "unknown"
-- COST  O(chunks) for the counts

--@include clock
--@include number
--@include upload

local ttl_ms, progress, to, from, needs, aborted = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local spoiled = upload_sound(KEYS)
if spoiled then return spoiled end
local facts = redis.call("HMGET", KEYS[1], "status", "error_message", "total_chunks")
local status, gone = facts[1], redis.call("HGET", KEYS[2], "aborted") == "1"
if not status then return { "unknown" } end
if status == to and gone == (aborted == "1") then return { "already", status } end
if gone or not string.find(from, "," .. status .. ",", 1, true) then return { "refused", status, facts[2] or "" } end
if needs == "all" then
  local _, durable = upload_count(KEYS)
  local total = upload_int(facts[3])
  if total == 0 or durable < total then return { "incomplete", durable, total } end
end
local now_ms = math.floor(clock_us() / 1000)
redis.call("HDEL", KEYS[1], "error_message")
redis.call("HSET", KEYS[1], "status", to)
if aborted == "1" then redis.call("HSET", KEYS[2], "aborted", "1") end
if #ARGV > 6 then redis.call("HSET", KEYS[1], unpack(ARGV, 7)) end
-- Whoever holds a chunk has lost it: nothing of an upload that ended is shipped.
if aborted == "1" or to == "COMPLETED" or to == "EXPIRED" then redis.call("DEL", KEYS[6]) end
upload_tell(KEYS, ttl_ms, progress, now_ms)
return { "moved", status }
