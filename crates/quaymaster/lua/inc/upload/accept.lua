-- upload/accept: taking a chunk.

-- Whether a chunk may come to the others. `known`: it is one of them already, and may only turn out to be
-- the last. Answers a word and a number that say why not, or "" and how many chunks there are then, 0 while unknown.
local function upload_fits(own, number, size, last, known)
  local facts = redis.call("HMGET", own[1], "total_chunks", "expected_size")
  local total, expected = upload_int(facts[1]), upload_int(facts[2])
  local seen = redis.call("STRLEN", own[4])
  if last then
    if total > 0 and number + 1 ~= total then return "other_last", total - 1 end
    if number + 1 < seen then return "passed", seen - 1 end
    total = number + 1
  elseif total > 0 and number >= total then
    return "after_last", total - 1
  end
  local work = redis.call("HMGET", own[2], "sized", "bytes_received")
  if work[1] == "1" then
    local received = upload_count(own)
    local bytes = upload_int(work[2])
    if not known then bytes, received = bytes + size, received + 1 end
    if bytes > expected then return "over", bytes end
    if total > 0 and received >= total and bytes < expected then return "under", bytes end
  end
  return "", total
end

-- Notes a chunk that is here now, to be shipped at once.
local function upload_take(own, number, size, facts, status, now_ms)
  redis.call("HSET", own[3], number, table.concat(facts, " "))
  redis.call("SETRANGE", own[4], number, "r")
  redis.call("ZADD", own[5], string.format("%.0f", now_ms), number)
  upload_more(own, "bytes_received", size)
  if status == "PENDING" then
    redis.call("HSET", own[1], "status", "UPLOADING")
    redis.call("HSET", own[2], "first_at", string.format("%.0f", now_ms))
  end
end

-- Wakes whoever ships; the chunk is found without it.
local function upload_hint(channel, id, number, last, now_ms)
  redis.pcall("PUBLISH", channel, string.format('{"upload_id":"%s","chunk_number":%s,"is_last":%s,"timestamp":%.0f}', id,
    number, last and "true" or "false", now_ms))
end

-- As `upload_tell`, and without a word where nothing has changed.
local function upload_news(own, ttl_ms, channel, now_ms, changed)
  if changed then return upload_tell(own, ttl_ms, channel, now_ms) end
  local received, durable = upload_count(own)
  local total = upload_int(redis.call("HGET", own[1], "total_chunks"))
  return received, durable, total, (total > 0 and durable >= total) and 1 or 0
end
