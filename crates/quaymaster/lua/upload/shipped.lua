-- upload.shipped: a chunk is durable and recorded; its bytes go.
--
-- KEYS  1-8 own  @upload
--       9 chunk  string   its bytes
-- ARGV  1 ttl_ms    int>0
--       2 progress  bytes   channel
--       3 number    int>=0
--       4 token     text
--       5 etag      text
-- OUT   "shipped"  received  durable  total  complete
--       "known"    received  durable  total  complete; it was durable already
--       "lost"
--       "unknown"
-- COST  O(log n), and O(chunks) for the counts

--@include clock
--@include number
--@include upload
--@include upload/durable
--@include upload/accept

local ttl_ms, progress, number, token, etag = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local spoiled = upload_sound(KEYS) or upload_spoiled(KEYS, number)
if spoiled then return spoiled end
if redis.call("EXISTS", KEYS[1]) == 0 then return { "unknown" } end
local now_ms = math.floor(clock_us() / 1000)
local known = upload_mark(KEYS, number) == "d"
if not known then
  if not upload_ours(KEYS, number, token) then return { "lost" } end
  -- What frees memory comes first: a store without any takes the rest then.
  redis.call("DEL", KEYS[9])
  local _, size = upload_facts(KEYS, number)
  upload_durable(KEYS, number, size, etag)
end
local received, durable, total, complete = upload_news(KEYS, ttl_ms, progress, now_ms, not known)
return { known and "known" or "shipped", received, durable, total, complete }
