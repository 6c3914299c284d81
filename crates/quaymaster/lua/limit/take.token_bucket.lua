-- limit.take.token_bucket: take tokens from the bucket, or learn how far it is behind.
--
-- KEYS  1 bucket    string  the theoretical arrival time
--       2 request?  string  the answer kept for a repeated request_id
-- ARGV  1 cost      int>0
--       2 limit     int>=0
--       3 window_us int>0
--       4 ttl_ms    int>0
--       5 inc_us    int>=0 what the cost adds: whole microseconds
--       6 inc_part  int>=0 and parts of 1/limit
--       7 keep_ms?  int>0 how long a repeated request_id is recognised
-- OUT   "allowed"    x  y  z; ahead_us, part, 0
--       "limited"    x  y  z
--       "malformed"  0  0  0
--       "conflict"
-- COST  O(1)

--@include clock
--@include number
--@include replay
--@include limit/token_bucket

local bucket, request = KEYS[1], KEYS[2]
local cost = tonumber(ARGV[1])
local limit = tonumber(ARGV[2])
local window_us = tonumber(ARGV[3])
local ttl_ms = ARGV[4]
local inc_us = ARGV[5]
local inc_part = ARGV[6]
local keep_ms = ARGV[7]

if request then
  local kept = replay_read(request, "take", "^allowed # # #$")
  if kept then return kept end
end
local now_us = clock_us()
local word, x, y, z = token_bucket_check(bucket, now_us, cost, limit, window_us, ttl_ms, inc_us, inc_part)
if word ~= "allowed" then
  if word == "limited" then token_bucket_heal(bucket, now_us, limit, window_us, ttl_ms) end
  return { word, x, y, z }
end
x, y, z = token_bucket_commit(bucket, now_us, cost, limit, window_us, ttl_ms, inc_us, inc_part, x, y, z)
if request then replay_keep(request, "take", keep_ms, word, x, y, z) end
return { word, x, y, z }
