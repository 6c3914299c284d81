-- limit.peek.token_bucket: what take would say, without taking.
--
-- KEYS  1 bucket    string  the theoretical arrival time
-- ARGV  1 cost      int>0
--       2 limit     int>=0
--       3 window_us int>0
--       4 ttl_ms    int>0
--       5 inc_us    int>=0 what the cost adds: whole microseconds
--       6 inc_part  int>=0 and parts of 1/limit
-- OUT   "allowed"    x  y  z; ahead_us, part, 0
--       "limited"    x  y  z
--       "malformed"  0  0  0
-- COST  O(1)

--@include clock
--@include number
--@include limit/token_bucket

local bucket = KEYS[1]
local cost = tonumber(ARGV[1])
local limit = tonumber(ARGV[2])
local window_us = tonumber(ARGV[3])
local ttl_ms = ARGV[4]
local inc_us = ARGV[5]
local inc_part = ARGV[6]

local now_us = clock_us()
return { token_bucket_check(bucket, now_us, cost, limit, window_us, ttl_ms, inc_us, inc_part) }
