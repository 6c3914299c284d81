-- limit.add.fixed_window: count what was let through while the store could not be asked.
--
-- KEYS  1 counter   string  calls counted in this window
--       2 request   string  recognises a repetition
-- ARGV  1 units     int>0
--       2 window_ms int>0
--       3 ttl_ms    int>0
--       4 bucket_ms int>=0 the end of the bucket in the key, 0 without one
--       5 end_ms    int>0 when the window that the units belong to ends
--       6 keep_ms   int>0 how long a repetition is recognised
-- OUT   "added"      used  reset_ms  life
--       "past"       0  0  0; the window is over: nothing to count any more
--       "malformed"  0  0  0
--       "conflict"
-- COST  O(1)

--@include clock
--@include replay
--@include limit/fixed_window

local counter, request = KEYS[1], KEYS[2]
local units = tonumber(ARGV[1])
local window_ms = tonumber(ARGV[2])
local ttl_ms = ARGV[3]
local bucket_ms = ARGV[4]
local end_ms = tonumber(ARGV[5])
local keep_ms = ARGV[6]

local kept = replay_read(request, "add", "^added # # #$")
if kept then return kept end
local now_us = clock_us()
local left_ms = end_ms - math.floor(now_us / 1000)
if left_ms <= 0 then return { "past", 0, 0, 0 } end
local word, x, y, z = fixed_window_check(counter, now_us, units, 0, window_ms, ttl_ms, "0", bucket_ms)
if word == "malformed" then return { word, 0, 0, 0 } end
-- A window that nobody has begun here began when the first unit was let through: it ends when that one does.
x, y, z = fixed_window_commit(counter, now_us, units, 0, math.min(left_ms, window_ms), ttl_ms, "0", bucket_ms, x, y, z)
replay_keep(request, "add", keep_ms, "added", x, y, z)
return { "added", x, y, z }
