-- event.publish: hand a message to everybody who listens now.
--
-- KEYS  1 request?  string  the answer kept for a repeated request_id
-- ARGV  1 channel   text
--       2 data      bytes
--       3 keep_ms   int>0   how long a repeated request_id is recognised
-- OUT   "published"  receivers
--       "conflict"
-- COST  O(n) of those who listen

--@include replay

local request = KEYS[1]
local channel, data, keep_ms = ARGV[1], ARGV[2], ARGV[3]

if request then
  local kept = replay_read(request, "publish")
  if kept then return kept end
end
local answer = { "published", redis.call("PUBLISH", channel, data) }
if request then replay_keep_all(request, "publish", keep_ms, answer) end
return answer
