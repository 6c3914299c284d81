-- limit.add.token_bucket: take the tokens that were handed out while the store could not be asked.
--
-- KEYS  1 bucket    string  the theoretical arrival time
--       2 request   string  recognises a repetition
-- ARGV  1 limit     int>=0
--       2 window_us int>0
--       3 ttl_ms    int>0
--       4 inc_us    int>=0 what the tokens add: whole microseconds
--       5 inc_part  int>=0 and parts of 1/limit
--       6 end_ms    int>0 when all of them would have come back
--       7 keep_ms   int>0 how long a repetition is recognised
-- OUT   "added"      ahead_us  part  0
--       "past"       0  0  0; they have come back: nothing to take any more
--       "malformed"  0  0  0
--       "conflict"
-- COST  O(1)

--@include clock
--@include number
--@include replay
--@include limit/token_bucket

local bucket, request = KEYS[1], KEYS[2]
local limit = tonumber(ARGV[1])
local window_us = tonumber(ARGV[2])
local ttl_ms = ARGV[3]
local inc_us = tonumber(ARGV[4])
local inc_part = tonumber(ARGV[5])
local end_ms = tonumber(ARGV[6])
local keep_ms = ARGV[7]

local kept = replay_read(request, "add", "^added # # #$")
if kept then return kept end
local now_us = clock_us()
if now_us >= end_ms * 1000 then return { "past", 0, 0, 0 } end
local ahead_us, part = token_bucket_backlog(bucket, now_us, limit, window_us)
if not ahead_us then return { "malformed", 0, 0, 0 } end
ahead_us, part = ahead_us + inc_us, part + inc_part
if part >= limit then ahead_us, part = ahead_us + 1, part - limit end
-- Empty is as empty as it gets.
if ahead_us >= window_us then ahead_us, part = window_us, 0 end
local x, y, z = token_bucket_write(bucket, now_us, ttl_ms, ahead_us, part)
replay_keep(request, "add", keep_ms, "added", x, y, z)
return { "added", x, y, z }
