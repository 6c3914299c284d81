-- limit.peek.sliding_window: what take would say, without taking.
--
-- KEYS  1 state     hash    this window's counter and the one before
-- ARGV  1 cost      int>0
--       2 limit     int>=0
--       3 window_ms int>0
--       4 ttl_ms    int>0
-- OUT   "allowed"    x  y  z; previous, current, elapsed_ms
--       "limited"    x  y  z
--       "malformed"  0  0  0
-- COST  O(1)

--@include clock
--@include number
--@include limit/sliding_window

local state = KEYS[1]
local cost = tonumber(ARGV[1])
local limit = tonumber(ARGV[2])
local window_ms = tonumber(ARGV[3])
local ttl_ms = ARGV[4]

local now_us = clock_us()
return { sliding_window_check(state, now_us, cost, limit, window_ms, ttl_ms) }
