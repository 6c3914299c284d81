-- limit.peek.sliding_log: what take would say, without taking.
--
-- KEYS  1 log       zset    one member per call
-- ARGV  1 cost      int>0
--       2 limit     int>=0
--       3 window_ms int>0
--       4 ttl_ms    int>0
--       5 nonce     text  unique per call
-- OUT   "allowed"    x  y  z; used, reset_ms, retry_ms
--       "limited"    x  y  z
--       "malformed"  0  0  0
-- COST  O(log n)

--@include clock
--@include limit/sliding_log

local log = KEYS[1]
local cost = tonumber(ARGV[1])
local limit = tonumber(ARGV[2])
local window_ms = tonumber(ARGV[3])
local ttl_ms = ARGV[4]
local nonce = ARGV[5]

local now_us = clock_us()
return { sliding_log_check(log, now_us, cost, limit, window_ms) }
