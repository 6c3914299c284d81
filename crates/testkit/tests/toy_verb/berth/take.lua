-- berth.take: take the berth, unless a ship lies there.
--
-- KEYS  1 berth     string  1 while a ship lies there
--       2 request?  string  the answer kept for a repeated request_id
-- ARGV  1 ttl_ms   int>0  how long it lies there
--       2 keep_ms  int>0  how long a repeated request_id is recognised
-- OUT   "taken"
--       "occupied"
--       "conflict"
-- COST  O(1)

--@include replay

local berth, request = KEYS[1], KEYS[2]
local ttl_ms, keep_ms = ARGV[1], ARGV[2]

if request then
  local kept = replay_read(request, "take", "^taken$")
  if kept then return kept end
end
if redis.call("GET", berth) then return { "occupied" } end
redis.call("SET", berth, "1", "PX", ttl_ms)
if request then replay_keep_all(request, "take", keep_ms, { "taken" }) end
return { "taken" }
