-- limit.take.sliding_log: count a call exactly, or learn when there is room again.
--
-- KEYS  1 log       zset    one member per call
--       2 request?  string  the answer kept for a repeated request_id
-- ARGV  1 cost      int>0
--       2 limit     int>=0
--       3 window_ms int>0
--       4 ttl_ms    int>0
--       5 nonce     text  unique per call
--       6 keep_ms?  int>0 how long a repeated request_id is recognised
-- OUT   "allowed"    x  y  z; used, reset_ms, retry_ms
--       "limited"    x  y  z
--       "malformed"  0  0  0
--       "conflict"
-- COST  O(cost × log n), cost at most 10,000; 1,000 more where calls lie in the future

--@include clock
--@include replay
--@include limit/sliding_log

local log, request = KEYS[1], KEYS[2]
local cost = tonumber(ARGV[1])
local limit = tonumber(ARGV[2])
local window_ms = tonumber(ARGV[3])
local ttl_ms = ARGV[4]
local nonce = ARGV[5]
local keep_ms = ARGV[6]

if request then
  local kept = replay_read(request, "take", "^allowed # # #$")
  if kept then return kept end
end
local now_us = clock_us()
local word, x, y, z = sliding_log_check(log, now_us, cost, limit, window_ms, ttl_ms, nonce)
if word ~= "allowed" then
  if word == "limited" then sliding_log_heal(log, math.floor(now_us / 1000), window_ms, ttl_ms, y) end
  return { word, x, y, z }
end
x, y, z = sliding_log_commit(log, now_us, cost, limit, window_ms, ttl_ms, nonce, nil, x, y, z)
if request then replay_keep(request, "take", keep_ms, word, x, y, z) end
return { word, x, y, z }
