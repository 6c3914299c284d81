-- limit.add.sliding_log: count what was let through while the store could not be asked, when it was.
--
-- KEYS  1 log       zset    one member per call
--       2 request   string  recognises a repetition
-- ARGV  1 units     int>0
--       2 window_ms int>0
--       3 ttl_ms    int>0
--       4 at_ms     int>0 when they were let through
--       5 nonce     text  unique per addition
--       6 keep_ms   int>0 how long a repetition is recognised
-- OUT   "added"      0  0  0
--       "past"       0  0  0; the window is over: nothing to count any more
--       "malformed"  0  0  0
--       "conflict"
-- COST  O(units × log n), units at most 10,000

--@include clock
--@include replay
--@include limit/sliding_log

local log, request = KEYS[1], KEYS[2]
local units = tonumber(ARGV[1])
local window_ms = tonumber(ARGV[2])
local ttl_ms = ARGV[3]
local at_ms = tonumber(ARGV[4])
local nonce = ARGV[5]
local keep_ms = ARGV[6]

local kept = replay_read(request, "add", "^added # # #$")
if kept then return kept end
local now_ms = math.floor(clock_us() / 1000)
-- A moment that this clock has not reached yet counts from now.
at_ms = math.min(at_ms, now_ms)
if at_ms <= now_ms - window_ms then return { "past", 0, 0, 0 } end
if not sliding_log_reset(log, now_ms, window_ms) then return { "malformed", 0, 0, 0 } end
for call = 1, units do
  redis.call("ZADD", log, at_ms, string.format("%.0f-%s-%d", at_ms, nonce, call))
end
redis.call("PEXPIRE", log, ttl_ms)
replay_keep(request, "add", keep_ms, "added", 0, 0, 0)
return { "added", 0, 0, 0 }
