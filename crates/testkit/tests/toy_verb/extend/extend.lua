-- dedupe.extend: remember the first one for its whole time again.
--
-- KEYS  1 first     string  the value of the first one
--       2 request?  string  the answer kept for a repeated request_id
-- ARGV  1 ttl_ms   int>0  how long it is remembered
--       2 keep_ms  int>0  how long a repeated request_id is recognised
-- OUT   "extended"
--       "absent"
--       "conflict"
-- COST  O(1)

--@include replay

local first, request = KEYS[1], KEYS[2]
local ttl_ms, keep_ms = ARGV[1], ARGV[2]

if request then
  local kept = replay_read(request, "extend", "^extended$")
  if kept then return kept end
end
if redis.call("PEXPIRE", first, ttl_ms) == 0 then return { "absent" } end
if request then replay_keep_all(request, "extend", keep_ms, { "extended" }) end
return { "extended" }
