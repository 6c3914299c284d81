-- upload.failed: shipping a chunk did not work; it comes again later, or the upload has FAILED.
--
-- KEYS  1-8 own  @upload
--       9 chunk  string   its bytes
-- ARGV  1 ttl_ms        int>0
--       2 progress      bytes   channel
--       3 number        int>=0
--       4 token         text
--       5 delay_ms      int     when it comes again, -1 to give up
--       6 error         text    what went wrong
--       7 chunk_ttl_ms  int>0
-- OUT   "retry"   attempts
--       "failed"  attempts
--       "lost"
-- COST  O(log n), and O(chunks) for the counts when the upload has failed

--@include clock
--@include number
--@include upload

local ttl_ms, progress, number, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local delay_ms, reason, chunk_ttl_ms = tonumber(ARGV[5]), ARGV[6], ARGV[7]

local spoiled = upload_sound(KEYS) or upload_spoiled(KEYS, number)
if spoiled then return spoiled end
local ours, attempts, given = upload_ours(KEYS, number, token)
if given then return { delay_ms >= 0 and "retry" or "failed", attempts } end
if not ours then return { "lost" } end
local now_ms = math.floor(clock_us() / 1000)
redis.call("HDEL", KEYS[6], "")
redis.call("HSET", KEYS[6], number, string.format("%.0f - %s", attempts, token))
redis.call("ZADD", KEYS[5], string.format("%.0f", now_ms + math.max(0, delay_ms)), number)
-- What is tried again must not expire meanwhile.
redis.call("PEXPIRE", KEYS[9], chunk_ttl_ms)
if delay_ms >= 0 then
  for at = 1, 8 do redis.call("PEXPIRE", KEYS[at], ttl_ms) end
  return { "retry", attempts }
end
local status = redis.call("HGET", KEYS[1], "status")
if status == "PENDING" or status == "UPLOADING" then
  redis.call("HSET", KEYS[1], "status", "FAILED", "error_message", reason)
  upload_tell(KEYS, ttl_ms, progress, now_ms)
end
return { "failed", attempts }
