-- event.publish: hand a message to everybody who listens now.
--
-- KEYS  1 request?  string  the answer kept for a repeated request_id
-- ARGV  1 channel  bytes
--       2 data     bytes
--       3 keep_ms  int>0  how long a repeated request_id is recognised
-- OUT   "published"  receivers
--       "refused"    why:bytes; the user may not use the channel; nothing was kept
--       "conflict"
-- COST  O(n) of those who listen

--@include replay

local request = KEYS[1]
local channel, data, keep_ms = ARGV[1], ARGV[2], ARGV[3]

if request then
  local kept = replay_read(request, "publish", "^published #$")
  if kept then return kept end
end
-- The record comes first: whoever hears an error has published nothing, and a message is never sent unrecorded.
if request then replay_keep_all(request, "publish", keep_ms, { "published", 0 }) end
local sent = redis.pcall("PUBLISH", channel, data)
if type(sent) == "table" then
  if request then redis.call("DEL", request) end
  return { "refused", sent.err }
end
local answer = { "published", sent }
if request then replay_keep_all(request, "publish", keep_ms, answer) end
return answer
