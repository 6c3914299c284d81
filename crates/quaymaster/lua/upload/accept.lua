-- upload.accept: take a chunk whose bytes are there, once; the bytes are only renamed.
--
-- KEYS  1-8 own      @upload
--       9 chunk      string   its bytes from now on
--       10 staging?  string   its bytes until now, unless they lie elsewhere, or under the chunk's key already
-- ARGV  1 ttl_ms         int>0
--       2 progress       bytes   channel
--       3 arrival        bytes   channel
--       4 id             text
--       5 number         int>=0
--       6 size           int>=0
--       7 digest         text    of its bytes
--       8 last           text    1 for the last one
--       9 place          text    where the bytes are: `store`, or what the caller calls it
--       10 chunk_ttl_ms  int>0
--       11 attempt       text    unique per attempt to send it
-- OUT   "accepted"    received  durable  total  complete  status:bytes  mark:bytes  attempt:bytes; mark: r or d;
--                     attempt: which brought it
--       "known"       received  durable  total  complete  status:bytes  mark:bytes  attempt:bytes; another attempt
--                     had brought these bytes before
--       "conflict"; other bytes have come under this number
--       "other_last"  number; another chunk is the last
--       "passed"      number; a chunk with a higher number has come
--       "after_last"  number
--       "over"        bytes; more than announced
--       "under"       bytes; the last missing one, and fewer than announced
--       "unstaged"    length; the staged bytes are not as many
--       "closed"      status:bytes  error:bytes
--       "unknown"
-- COST  O(chunks) for the counts, a byte each

--@include clock
--@include number
--@include upload
--@include upload/accept

local chunk, staging = KEYS[9], KEYS[10]
local ttl_ms, progress, arrival, id, number, size = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local digest, last, place, chunk_ttl_ms = ARGV[7], ARGV[8] == "1", ARGV[9], ARGV[10]

local spoiled = upload_sound(KEYS) or upload_spoiled(KEYS, number)
if spoiled then return spoiled end
local facts = redis.call("HMGET", KEYS[1], "status", "error_message", "is_last_received")
local status = facts[1]
if not status then return { "unknown" } end
local held, held_size, held_place, held_attempt = upload_facts(KEYS, number)
if held and (held ~= digest or held_size ~= size) then return { "conflict" } end
local mark = upload_mark(KEYS, number)
local known = held and (mark == "r" or mark == "d")
local now_ms = math.floor(clock_us() / 1000)
local late = upload_int(redis.call("HGET", KEYS[2], "deadline")) <= now_ms
local open, all_here = status == "PENDING" or status == "UPLOADING", status == "COMPLETING" or status == "COMPLETED"
if (late or not open) and not (known and all_here) then
  return { "closed", open and "EXPIRED" or status, facts[2] or "" }
end
local why, total = upload_fits(KEYS, tonumber(number), size, last, known)
if why ~= "" then return { why, total } end
-- Bytes that a store without memory dropped are welcome again.
local wanted = not known or (mark == "r" and held_place == "store" and redis.call("EXISTS", chunk) == 0)
local from = staging or (place == "store" and size > 0 and chunk)
local length = from and redis.call("STRLEN", from) or size
if wanted and length ~= size then return { "unstaged", length } end
if staging and not wanted then redis.call("DEL", staging) end
if staging and wanted then redis.call("RENAME", staging, chunk) end
if from and wanted then redis.call("PEXPIRE", chunk, chunk_ttl_ms) end
local attempt = known and held_attempt or ARGV[11]
local ends = last and facts[3] ~= "true"
if not known then upload_take(KEYS, number, size, { digest, ARGV[6], place, attempt }, status, now_ms) end
if ends then redis.call("HSET", KEYS[1], "total_chunks", string.format("%.0f", total), "is_last_received", "true") end
local received, durable, all, complete = upload_news(KEYS, ttl_ms, progress, now_ms, ends or not known)
if not known then upload_hint(arrival, id, number, last, now_ms) end
if not known then status = "UPLOADING" end
-- Whoever offers the very bytes that were taken must not hear that others were.
local same = attempt == ARGV[11] or (place ~= "store" and held_place == place)
return { same and "accepted" or "known", received, durable, all, complete, status, known and mark or "r", attempt }
