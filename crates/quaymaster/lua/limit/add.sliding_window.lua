-- limit.add.sliding_window: count what was let through while the store could not be asked.
--
-- KEYS  1 state     hash    this window's counter and the one before
--       2 request   string  recognises a repetition
-- ARGV  1 units     int>0
--       2 window_ms int>0
--       3 ttl_ms    int>0
--       4 start_ms  int>0 the start of the window that the units belong to
--       5 keep_ms   int>0 how long a repetition is recognised
-- OUT   "added"      previous  current  elapsed_ms
--       "past"       0  0  0; neither this window nor the one before: nothing to count any more
--       "malformed"  0  0  0
--       "conflict"
-- COST  O(1)

--@include clock
--@include number
--@include replay
--@include limit/sliding_window

local state, request = KEYS[1], KEYS[2]
local units = tonumber(ARGV[1])
local window_ms = tonumber(ARGV[2])
local ttl_ms = ARGV[3]
local start_ms = tonumber(ARGV[4])
local keep_ms = ARGV[5]

local kept = replay_read(request, "add", "^added # # #$")
if kept then return kept end
local now_us = clock_us()
local previous, current, elapsed_ms = sliding_window_read(state, now_us, window_ms)
if not previous then return { "malformed", 0, 0, 0 } end
local now_start_ms = math.floor(now_us / 1000) - elapsed_ms
if start_ms >= now_start_ms then
  current = current + units
elseif start_ms == now_start_ms - window_ms then
  previous = previous + units
else
  return { "past", 0, 0, 0 }
end
local x, y, z = sliding_window_write(state, now_us, window_ms, ttl_ms, previous, current)
replay_keep(request, "add", keep_ms, "added", x, y, z)
return { "added", x, y, z }
