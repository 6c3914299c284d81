-- idempotency.begin: claim an operation, or learn who runs it, or what it answered.
--
-- KEYS  1 record          string  who runs the operation, or what it answered
-- ARGV  1 token           text    unique per attempt; the same one again finds its own claim
--       2 fp              text    the request's fingerprint, - for none
--       3 in_progress_ms  int>0   how long the claim lives
-- OUT   "started"      remaining_ms
--       "in_progress"  remaining_ms
--       "finished"     enc:bytes  bytes:bytes
--       "mismatch"     0  kept_fp:bytes
--       "malformed"    0
-- COST  O(n) of the response

--@include clock
--@include number
--@include idempotency

local record = KEYS[1]
local token = ARGV[1]
local fp = ARGV[2]
local in_progress_ms = tonumber(ARGV[3])

local now_ms = math.floor(clock_us() / 1000)
local word, x, bytes = idempotency_check(record, token, fp, now_ms)
if word == "free" then
  idempotency_commit(record, token, fp, in_progress_ms, now_ms)
  return { "started", in_progress_ms }
end
if word == "ours" then return { "started", x } end
return { word, x, bytes }
