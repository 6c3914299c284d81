-- limit.refund.sliding_log: give calls back, never below zero.
--
-- KEYS  1 log       zset    one member per call
--       2 request?  string  the answer kept for a repeated request_id
-- ARGV  1 cost      int>0
--       2 limit     int>=0
--       3 window_ms int>0
--       4 ttl_ms    int>0
--       5 nonce     text  unique per call
--       6 keep_ms   int>0 how long a repeated request_id is recognised
-- OUT   "refunded"   x  y  z; used, reset_ms, retry_ms
--       "malformed"  0  0  0
--       "conflict"
-- COST  O(cost × log n), cost at most 10,000

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
  local kept = replay_read(request, "refund", "^refunded # # #$")
  if kept then return kept end
end
local now_us = clock_us()
local now_ms = math.floor(now_us / 1000)
if not sliding_log_reset(log, now_ms, window_ms) then return { "malformed", 0, 0, 0 } end
redis.call("ZREMRANGEBYSCORE", log, "-inf", string.format("%.0f", now_ms - window_ms))
redis.call("ZPOPMAX", log, cost)
-- What a call of cost 1 would be told now.
local _, used, reset_ms, retry_ms = sliding_log_check(log, now_us, 1, limit, window_ms)
if used > 0 then redis.call("PEXPIRE", log, ttl_ms) end
if request then replay_keep(request, "refund", keep_ms, "refunded", used, reset_ms, retry_ms) end
return { "refunded", used, reset_ms, retry_ms }
