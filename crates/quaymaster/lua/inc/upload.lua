-- upload: what every step on one upload shares.
--
-- A step is given the upload's eight keys in this order, from the first on:
--
-- KEYS  @upload
--       state     hash    documented fields
--       work      hash    deadline bytes_received bytes_uploaded sized seq aborted first_at
--       received  hash    what is known of each chunk
--       map       string  a letter for each chunk
--       todo      zset    chunks by the millisecond they may be claimed
--       leases    hash    who holds which chunk
--       etags     zset    of durable chunks
--       metadata  hash
--
-- `map` has a letter for every chunk, at its number: r received, d durable, m lost and to be sent again. A chunk with
-- r is in `todo` by the millisecond it may be claimed, a claimed one by the end of its lease; `leases` has its attempts
-- and the token of who holds it, `-` and the token of who gave it back for one that nobody holds. A token is good until somebody else has claimed the chunk, or it is settled.
-- `received` keeps digest, bytes and place of every chunk ever received, and which attempt brought it: a number stands
-- for the same bytes for ever, and the attempt is what its bytes are called while they are in flight.

-- What a script is to return if the state, the work or the map holds something else than it should.
local function upload_numbers(own)
  local spoiled
  if redis.call("STRLEN", own[4]) > 10000 then spoiled = own[4] end
  local state = redis.call("HMGET", own[1], "status", "total_chunks", "expected_size")
  local known = " PENDING UPLOADING COMPLETING COMPLETED FAILED EXPIRED "
  if state[1] and not string.find(known, " " .. state[1] .. " ", 1, true) then spoiled = own[1] end
  if not number_read(state[2] or "0") or not number_read(state[3] or "0") then spoiled = own[1] end
  local work = redis.call("HMGET", own[2], "deadline", "bytes_received", "bytes_uploaded", "seq")
  for at = 1, 4 do
    if not number_read(work[at] or "0") then spoiled = own[2] end
  end
  return spoiled and number_malformed(spoiled)
end

-- The same, and reads every key that may be written: one of another type stops the script before its first write.
local function upload_sound(own)
  redis.call("HLEN", own[3])
  redis.call("ZCARD", own[5])
  redis.call("HLEN", own[6])
  redis.call("ZCARD", own[7])
  redis.call("HLEN", own[8])
  return upload_numbers(own)
end

local function upload_int(text)
  return tonumber(text or "") or 0
end

-- Adds to a sum of `work`.
local function upload_more(own, field, more)
  local held = upload_int(redis.call("HGET", own[2], field))
  redis.call("HSET", own[2], field, string.format("%.0f", math.max(0, held + more)))
end

-- Digest, bytes, place and attempt of a chunk; nothing for one never received.
local function upload_facts(own, number)
  local held = redis.call("HGET", own[3], number) or ""
  local digest, size, place, attempt = string.match(held, "^(%S+) (%d+) (%S+) (%S+)$")
  return digest, number_read(size) or 0, place, attempt or "-"
end

-- What the script is to return if what is known of a chunk, or of who holds it, is none of ours.
local function upload_spoiled(own, number)
  local facts, lease = redis.call("HGET", own[3], number), redis.call("HGET", own[6], number)
  if facts and not number_read(string.match(facts, "^%S+ (%d+) %S+ %S+$")) then return number_malformed(own[3]) end
  if lease and not number_read(string.match(lease, "^(%d+) %S+ ?%S*$")) then return number_malformed(own[6]) end
  return nil
end

local function upload_mark(own, number)
  return redis.call("GETRANGE", own[4], number, number)
end

-- How many chunks are received (durable ones included), and how many durable.
local function upload_count(own)
  local map = redis.call("GET", own[4]) or ""
  local _, waiting = string.gsub(map, "r", "")
  local _, durable = string.gsub(map, "d", "")
  return waiting + durable, durable
end

-- Whether `token` holds the chunk, how often it has been tried, and whether `token` was the last to give it back.
local function upload_ours(own, number, token)
  local attempts, holder, last = string.match(redis.call("HGET", own[6], number) or "", "^(%d+) (%S+) ?(%S*)$")
  return holder == token and token ~= "-", number_read(attempts) or 0, holder == "-" and last == token
end

-- Whether somebody holds the chunk whose lease lives.
local function upload_held(own, number, now_ms)
  local holder = string.match(redis.call("HGET", own[6], number) or "", "^%d+ (%S+)") or "-"
  return holder ~= "-" and upload_int(redis.call("ZSCORE", own[5], number)) > now_ms
end

-- Writes the counts into the state, renews the life of all keys (without a `ttl_ms` it stays) and publishes the progress.
-- Answers chunks received, chunks durable, chunks in all (0 while unknown), and 1 when all are durable.
local function upload_tell(own, ttl_ms, channel, now_ms)
  local received, durable = upload_count(own)
  local facts = redis.call("HMGET", own[1], "status", "total_chunks", "expected_size", "error_message", "final_size")
  local work = redis.call("HMGET", own[2], "bytes_uploaded", "seq", "aborted")
  local status, total, expected = facts[1] or "", upload_int(facts[2]), upload_int(facts[3])
  local bytes, seq = upload_int(work[1]), upload_int(work[2]) + 1
  redis.call("HSET", own[1], "received_chunks", string.format("%.0f", received), "uploaded_chunks",
    string.format("%.0f", durable), "updated_at", string.format("%.0f", now_ms))
  redis.call("HSET", own[2], "seq", string.format("%.0f", seq))
  for at = 1, ttl_ms and 8 or 0 do redis.call("PEXPIRE", own[at], ttl_ms) end
  local why = facts[4] or ""
  if why ~= "" then
    local escaped = {}
    for code = 0, 127 do escaped[string.char(code)] = string.format("\\u%04x", code) end
    why = ',"error_message":"' .. string.gsub(why, '[%c"\\]', escaped) .. '"'
  end
  -- By chunks once their number is known, as documented; until then by bytes, if a size was announced.
  local tenths = 0
  if expected > 0 then tenths = math.floor(bytes * 1000 / expected) end
  if total > 0 then tenths = math.floor(durable * 1000 / total) end
  if status == "COMPLETED" then tenths, expected = 1000, number_read(facts[5] or "") or expected end
  tenths = math.min(tenths, 1000)
  redis.pcall("PUBLISH", channel, string.format('{"uploaded_chunks":%.0f,"total_chunks":%.0f,"bytes_uploaded":%.0f,'
    .. '"total_bytes":%.0f,"percent":%.0f.%.0f,"status":"%s","received_chunks":%.0f,"seq":%.0f,"aborted":%s', durable,
    total, bytes, expected, math.floor(tenths / 10), tenths % 10, string.match(status, "^%u+$") or "", received, seq,
    work[3] == "1" and "true" or "false") .. why .. "}")
  return received, durable, total, (total > 0 and durable >= total) and 1 or 0
end
