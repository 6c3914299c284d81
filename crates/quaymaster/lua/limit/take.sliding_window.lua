-- limit.take.sliding_window: count a call against two weighted windows.
--
-- KEYS  1 state     hash    this window's counter and the one before
--       2 request?  string  the answer kept for a repeated request_id
-- ARGV  1 cost      int>0
--       2 limit     int>=0
--       3 window_ms int>0
--       4 ttl_ms    int>0
--       5 keep_ms?  int>0 how long a repeated request_id is recognised
-- OUT   "allowed"    x  y  z; previous, current, elapsed_ms
--       "limited"    x  y  z
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
  local kept = replay_read(request, "take", "^allowed # # #$")
  if kept then return kept end
end
local now_us = clock_us()
local word, x, y, z = sliding_window_check(state, now_us, cost, limit, window_ms, ttl_ms)
if word ~= "allowed" then
  if word == "limited" then sliding_window_heal(state, now_us, window_ms, ttl_ms) end
  return { word, x, y, z }
end
x, y, z = sliding_window_commit(state, now_us, cost, limit, window_ms, ttl_ms, nil, nil, x, y, z)
if request then replay_keep(request, "take", keep_ms, word, x, y, z) end
return { word, x, y, z }
