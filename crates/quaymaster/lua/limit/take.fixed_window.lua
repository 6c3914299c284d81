-- limit.take.fixed_window: count a call in its window, or learn how long the window lasts.
--
-- KEYS  1 counter   string  calls counted in this window
--       2 request?  string  the answer kept for a repeated request_id
-- ARGV  1 cost      int>0
--       2 limit     int>=0
--       3 window_ms int>0
--       4 ttl_ms?   int>0 this and what follows only with a bucket in the key or a request
--       5 start_ms? int>=0 the bucket in the key, 0 without one
--       6 end_ms?   int>=0
--       7 keep_ms?  int>0 how long a repeated request_id is recognised
-- OUT   "allowed"    x  y  z; used, reset_ms, life
--       "limited"    x  y  z
--       "stale"      now_ms  0  0
--       "malformed"  0  0  0
--       "conflict"
-- COST  O(1)

--@include clock
--@include replay
--@include limit/fixed_window

local counter, request = KEYS[1], KEYS[2]
local cost = ARGV[1]
local limit = tonumber(ARGV[2])
local window_ms = tonumber(ARGV[3])
local ttl_ms, start_ms, end_ms, keep_ms = ARGV[4], ARGV[5], ARGV[6] or "0", ARGV[7]

if request then
  local kept = replay_read(request, "take", "^allowed # # #$")
  if kept then return kept end
end
local now_us
if end_ms ~= "0" then
  now_us = clock_us()
end
local word, x, y, z = fixed_window_check(counter, now_us, cost, limit, window_ms, ttl_ms, start_ms, end_ms)
local ails
if word == "limited" then
  ails = fixed_window_ails(counter, end_ms, z)
  if ails then cost, z = 0, 2 end
end
if word == "allowed" or ails then
  x, y, z = fixed_window_commit(counter, now_us, cost, limit, window_ms, ttl_ms, start_ms, end_ms, x, y, z)
end
if request and word == "allowed" then
  replay_keep(request, "take", keep_ms, word, x, y, z)
end
return { word, x, y, z }
