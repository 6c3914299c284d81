-- idempotency.abandon: give a claim that is still ours back, so that the next one may begin at once.
--
-- KEYS  1 record    string  who runs the operation, or what it answered
--       2 request?  string  the answer kept for a repeated request_id
-- ARGV  1 token    text   the claim's
--       2 channel  bytes  where those who wait listen
--       3 keep_ms  int>0  how long a repeated request_id is recognised
-- OUT   "abandoned"
--       "lost"
--       "malformed"
--       "conflict"
-- COST  O(1)

--@include clock
--@include number
--@include replay
--@include idempotency

local record, request = KEYS[1], KEYS[2]
local token = ARGV[1]
local channel = ARGV[2]
local keep_ms = ARGV[3]

-- A live claim is given back, whatever was answered before: ids and tokens may both come again. Only a claim that
-- is gone is answered from the record, which belongs to its token.
local op = "abandon:" .. token
local kept = request and replay_read(request, op, "^abandoned$")
if kept and kept.err then return kept end
local now_ms = math.floor(clock_us() / 1000)
local word = idempotency_abandon(record, token, now_ms)
if request then
  if word ~= "abandoned" then return kept or { word } end
  replay_keep_all(request, op, keep_ms, { word })
end
if word == "abandoned" then redis.pcall("PUBLISH", channel, "abandoned") end
return { word }
