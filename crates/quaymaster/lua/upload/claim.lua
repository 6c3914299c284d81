-- upload.claim: hand out chunks that may be shipped now, each under a lease.
--
-- KEYS  1-8 own  @upload
--       9 claim  string   the numbers this token got, given again when it comes again
-- ARGV  1 ttl_ms     int>0
--       2 token      text    unique per claim
--       3 count      int>0   at most 1000
--       4 lease_ms   int>0
-- OUT   "chunks"   next_ms  node_id:bytes  key:bytes  multipart_id:bytes
--                  chunks(number:bytes attempt left_ms facts:bytes)..; next_ms: when the next may be claimed, 0 for now,
--                  -1 for none
--       "closed"   status:bytes
--       "unknown"
-- COST  O(count log n)

--@include clock
--@include number
--@include upload
--@include upload/due

local ttl_ms, token, count, lease_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local todo, leases, claim = KEYS[5], KEYS[6], KEYS[9]

local spoiled = upload_sound(KEYS)
if spoiled then return spoiled end
local facts = redis.call("HMGET", KEYS[1], "status", "node_id", "s3_key", "s3_upload_id")
if not facts[1] then return { "unknown" } end
if facts[1] ~= "PENDING" and facts[1] ~= "UPLOADING" then return { "closed", facts[1] } end
local now_ms = math.floor(clock_us() / 1000)
local reply = { "chunks", -1, facts[2] or "", facts[3] or "", facts[4] or "" }
local got = redis.call("GET", claim)
if got then
  for number in string.gmatch(got, "%d+") do
    local ours, attempts = upload_ours(KEYS, number, token)
    local ends = number_score(redis.call("ZSCORE", todo, number) or "0")
    if ours then
      spoiled = upload_spoiled(KEYS, number)
      if spoiled then return spoiled end
      for _, part in ipairs({ number, attempts, math.max(0, ends - now_ms), redis.call("HGET", KEYS[3], number) or "" }) do
        reply[#reply + 1] = part
      end
    end
  end
else
  local due, odd = upload_due(KEYS, now_ms, count)
  for _, number in ipairs(due) do
    spoiled = upload_spoiled(KEYS, number)
    if spoiled then return spoiled end
  end
  if #odd > 0 then redis.call("ZREM", todo, unpack(odd)) end
  local ends = string.format("%.0f", now_ms + lease_ms)
  -- A store without memory refuses what could grow, unless something that cannot was written before; and what is never
  -- claimed never frees any.
  redis.call("HDEL", leases, "")
  for _, number in ipairs(due) do
    local _, attempts = upload_ours(KEYS, number, token)
    redis.call("HSET", leases, number, string.format("%.0f %s", attempts + 1, token))
    redis.call("ZADD", todo, ends, number)
    for _, part in ipairs({ number, attempts + 1, lease_ms, redis.call("HGET", KEYS[3], number) or "" }) do
      reply[#reply + 1] = part
    end
  end
  if #due > 0 then
    redis.call("SET", claim, table.concat(due, " "), "PX", ARGV[4])
    for at = 1, 8 do redis.call("PEXPIRE", KEYS[at], ttl_ms) end
  end
end
local first = redis.call("ZRANGE", todo, 0, 0, "WITHSCORES")[2]
if first then reply[2] = math.max(0, number_score(first) - now_ms) end
return reply
