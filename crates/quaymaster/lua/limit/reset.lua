-- limit.reset: forget what was counted, whatever the algorithm.
--
-- KEYS  1 state     any     the limit's key
--       2 request?  string  the answer kept for a repeated request_id
-- ARGV  1 start_ms  int>=0  the bucket in the key, 0 without one
--       2 end_ms    int>=0
--       3 keep_ms   int>0   how long a repeated request_id is recognised
-- OUT   "reset"     0  reset_ms  0; until the bucket in the key ends, 0 without one
--       "stale"     now_ms  0  0
--       "conflict"
-- COST  O(n) of what is removed

--@include clock
--@include replay

local state, request = KEYS[1], KEYS[2]
local start_ms = tonumber(ARGV[1])
local end_ms = tonumber(ARGV[2])
local keep_ms = tonumber(ARGV[3])

if request then
  local kept = replay_read(request, "reset", "^reset # # #$")
  if kept then return kept end
end
local now_ms = math.floor(clock_us() / 1000)
if end_ms > 0 and (now_ms < start_ms or now_ms >= end_ms) then return { "stale", now_ms, 0, 0 } end
redis.call("DEL", state)
local reset_ms = end_ms > 0 and end_ms - now_ms or 0
if request then replay_keep(request, "reset", keep_ms, "reset", 0, reset_ms, 0) end
return { "reset", 0, reset_ms, 0 }
