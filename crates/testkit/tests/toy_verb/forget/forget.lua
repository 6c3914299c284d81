-- dedupe.forget: let the next one be the first again.
--
-- KEYS  1 first     string  the value of the first one
--       2 request?  string  the answer kept for a repeated request_id
-- ARGV  1 keep_ms  int>0  how long a repeated request_id is recognised
-- OUT   "forgotten"
--       "absent"
--       "conflict"
-- COST  O(1)

--@include replay

local first, request = KEYS[1], KEYS[2]
local keep_ms = ARGV[1]

if request then
  local kept = replay_read(request, "forget", "^forgotten$")
  if kept then return kept end
end
local removed = redis.call("DEL", first)
if request and removed == 1 then replay_keep_all(request, "forget", keep_ms, { "forgotten" }) end
if removed == 0 then return { "absent" } end
return { "forgotten" }
