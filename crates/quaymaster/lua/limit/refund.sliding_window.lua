-- limit.refund.sliding_window: give calls back, never below zero.
--
-- KEYS  1 state     hash    this window's counter and the one before
--       2 request?  string  the answer kept for a repeated request_id
-- ARGV  1 cost      int>0
--       2 limit     int>=0
--       3 window_ms int>0
--       4 ttl_ms    int>0
--       5 keep_ms   int>0 how long a repeated request_id is recognised
-- OUT   "refunded"   x  y  z; previous, current, elapsed_ms
--       "malformed"  0  0  0
--       "conflict"
-- COST  O(1)

--@include clock
--@include number
--@include replay
--@include limit/sliding_window

local state, request = KEYS[1], KEYS[2]
local cost = tonumber(ARGV[1])
local limit = tonumber(ARGV[2])
local window_ms = tonumber(ARGV[3])
local ttl_ms = ARGV[4]
local keep_ms = ARGV[5]

if request then
  local kept = replay_read(request, "refund", "^refunded # # #$")
  if kept then return kept end
end
local now_us = clock_us()
local previous, current, elapsed_ms = sliding_window_refund(state, now_us, cost, window_ms, ttl_ms)
if not previous then return { "malformed", 0, 0, 0 } end
if request then replay_keep(request, "refund", keep_ms, "refunded", previous, current, elapsed_ms) end
return { "refunded", previous, current, elapsed_ms }
