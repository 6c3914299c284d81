-- limit.peek.fixed_window: what take would say, without taking.
--
-- KEYS  1 counter   string  calls counted in this window
-- ARGV  1 cost      int>0
--       2 limit     int>=0
--       3 window_ms int>0
--       4 ttl_ms    int>0
--       5 start_ms  int>=0 the bucket in the key, 0 without one
--       6 end_ms    int>=0
-- OUT   "allowed"    x  y  z; used, reset_ms, life
--       "limited"    x  y  z
--       "stale"      now_ms  0  0
--       "malformed"  0  0  0
-- COST  O(1)

--@include clock
--@include limit/fixed_window

local counter = KEYS[1]
local cost = tonumber(ARGV[1])
local limit = tonumber(ARGV[2])
local window_ms = tonumber(ARGV[3])
local ttl_ms = ARGV[4]
local start_ms = ARGV[5]
local end_ms = ARGV[6]

local now_us = end_ms ~= "0" and clock_us()
return { fixed_window_check(counter, now_us, cost, limit, window_ms, ttl_ms, start_ms, end_ms) }
