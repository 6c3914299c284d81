-- upload.restore: make the state say what the ledger knows: durable parts, how many there are, how it ended.
--
-- KEYS  1-8 own     @upload
--       9.. chunks  string   where the bytes of each part may still be
-- ARGV  1 ttl_ms      int>0
--       2 progress    bytes   channel
--       3 total       int>=0  how many chunks there are, 0 for unknown
--       4 status      text    empty to leave it
--       5 error       text    empty for none
--       6 final_etag  text    empty for none
--       7 final_size  text    empty for none
--       8.. parts     each    at most 200
--           number    int>=0
--           size      int>=0
--           digest    text
--           etag      text
-- OUT   "restored"  received  durable  total  complete  waited(number attempt:bytes)..; those that
--                  are durable now
--       "unknown"
-- COST  O(parts log n), and O(chunks) for the counts

--@include clock
--@include number
--@include upload
--@include upload/durable
--@include upload/accept

local ttl_ms, progress, total, status = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local spoiled = upload_sound(KEYS)
if spoiled then return spoiled end
local held = redis.call("HMGET", KEYS[1], "status", "is_last_received")
if not held[1] then return { "unknown" } end
for at = 8, #ARGV, 4 do
  spoiled = upload_spoiled(KEYS, ARGV[at])
  if spoiled then return spoiled end
end
local changed, waited, now_ms = 0, {}, math.floor(clock_us() / 1000)
for at = 8, #ARGV, 4 do
  local number, size, facts = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2] .. " " .. ARGV[at + 1] .. " store -"
  local mark = upload_mark(KEYS, number)
  if mark ~= "d" then
    changed = changed + 1
    redis.call("DEL", KEYS[9 + (at - 8) / 4])
    if mark == "r" then
      local _, before, _, attempt = upload_facts(KEYS, number)
      upload_more(KEYS, "bytes_received", -before)
      waited[#waited + 1] = number
      waited[#waited + 1] = attempt
    end
    redis.call("HSET", KEYS[3], number, facts)
    upload_more(KEYS, "bytes_received", size)
    upload_durable(KEYS, number, size, ARGV[at + 3])
  end
end
if held[1] == "PENDING" and changed > 0 then redis.call("HSET", KEYS[1], "status", "UPLOADING") end
if total > 0 and held[2] ~= "true" then
  redis.call("HSET", KEYS[1], "total_chunks", ARGV[3], "is_last_received", "true")
  changed = changed + 1
end
if status ~= "" and status ~= held[1] then
  redis.call("HSET", KEYS[1], "status", status)
  changed = changed + 1
end
for at, name in pairs({ [5] = "error_message", [6] = "final_etag", [7] = "final_size" }) do
  if ARGV[at] ~= "" then redis.call("HSET", KEYS[1], name, ARGV[at]) end
end
-- Why something waited is over with it.
if status == "COMPLETED" and ARGV[5] == "" then redis.call("HDEL", KEYS[1], "error_message") end
local received, durable, all, complete = upload_news(KEYS, ttl_ms, progress, now_ms, changed > 0)
return { "restored", received, durable, all, complete, unpack(waited) }
