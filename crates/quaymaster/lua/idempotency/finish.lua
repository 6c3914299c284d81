-- idempotency.finish: keep the answer of a claim that is still ours, and wake who waits for it.
--
-- KEYS  1 record   string  who runs the operation, or what it answered
-- ARGV  1 token    text   the claim's
--       2 ttl_ms   int>0  how long the answer is replayed
--       3 enc      text   - no response, r raw, z zstd, s sealed, t zstd and sealed
--       4 bytes    bytes  the response
--       5 channel  bytes  where those who wait listen
-- OUT   "finished"   same  enc:bytes  bytes:bytes; same: 1 if what is kept is what was given, else it follows
--       "lost"
--       "malformed"
-- COST  O(n) of the response

--@include clock
--@include number
--@include idempotency

local record = KEYS[1]
local token = ARGV[1]
local ttl_ms = ARGV[2]
local enc = ARGV[3]
local bytes = ARGV[4]
local channel = ARGV[5]

local now_ms = math.floor(clock_us() / 1000)
local word, same, kept_enc, kept, anew = idempotency_finish(record, token, ttl_ms, enc, bytes, now_ms)
if anew then redis.pcall("PUBLISH", channel, "finished") end
return { word, same, kept_enc, kept }
