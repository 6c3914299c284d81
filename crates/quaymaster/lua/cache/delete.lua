-- cache.delete: forget the value, and what somebody is loading in its place.
--
-- KEYS  1 entry     any     the value
--       2 load      string  who loads it, and until when
--       3 request?  string  the answer kept for a repeated request_id
-- ARGV  1 channel  bytes  where those listen who wait for the value
--       2 keep_ms  int>0  how long a repeated request_id is recognised
-- OUT   "deleted"
--       "absent"
--       "conflict"
-- COST  O(n) of what is removed

--@include replay
--@include cache

local entry, load, request = KEYS[1], KEYS[2], KEYS[3]
local channel, keep_ms = ARGV[1], ARGV[2]

if request then
  local kept = replay_read(request, "delete", "^deleted$")
  if kept then return kept end
end
local removed = redis.call("DEL", entry)
local waited = cache_settle(load)
if request and removed == 1 then replay_keep_all(request, "delete", keep_ms, { "deleted" }) end
cache_wake(waited, channel)
if removed == 0 then return { "absent" } end
return { "deleted" }
