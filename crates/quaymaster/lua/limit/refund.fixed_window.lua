-- limit.refund.fixed_window: give calls back, never below zero.
--
-- KEYS  1 counter   string  calls counted in this window
--       2 request?  string  the answer kept for a repeated request_id
-- ARGV  1 cost      int>0
--       2 limit     int>=0
--       3 window_ms int>0
--       4 ttl_ms    int>0
--       5 start_ms  int>=0 the bucket in the key, 0 without one
--       6 end_ms    int>=0
--       7 keep_ms   int>0 how long a repeated request_id is recognised
-- OUT   "refunded"   x  y  z; used, reset_ms, life
--       "stale"      now_ms  0  0
--       "malformed"  0  0  0
--       "conflict"
-- COST  O(1)

--@include clock
--@include replay
--@include limit/fixed_window

local counter, request = KEYS[1], KEYS[2]
local cost = tonumber(ARGV[1])
local limit = tonumber(ARGV[2])
local window_ms = tonumber(ARGV[3])
local ttl_ms = ARGV[4]
local start_ms = ARGV[5]
local end_ms = ARGV[6]
local keep_ms = ARGV[7]

if request then
  local kept = replay_read(request, "refund", "^refunded # # #$")
  if kept then return kept end
end
local now_us = end_ms ~= "0" and clock_us()
local word, used, reset_ms, life = fixed_window_check(counter, now_us, cost, limit, window_ms, ttl_ms, start_ms, end_ms)
if word == "stale" or word == "malformed" then return { word, used, 0, 0 } end
if used > 0 then
  used, reset_ms, life = fixed_window_commit(counter, now_us, -math.min(cost, used), limit, window_ms, ttl_ms,
    start_ms, end_ms, used, reset_ms, life)
end
if request then replay_keep(request, "refund", keep_ms, "refunded", used, reset_ms, life) end
return { "refunded", used, reset_ms, life }
