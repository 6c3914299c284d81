-- guard.enter: claim the record, take the lock and count the limits, all or none.
--
-- KEYS  1 record?   string  who runs the operation, or what it answered
--       2-5 lock?   @lock
--       6.. limits  any     one per limit
--       + request?  string  the answer kept for a repeated request_id
-- ARGV  1 token           text    unique per attempt; the same one again finds what it took
--       2 fp              text    the request's fingerprint, - for none
--       3 in_progress_ms  int>=0  how long the claim lives, 0 without a record
--       4 lock_ms         int>=0  how long the lease lives, 0 without a lock
--       5 fence_ttl_ms    int>=0
--       6 keep_ms         int>0   how long a repeated request_id is recognised
--       7 known           text    1 where the request may have counted: no leases, or an earlier step found its own
--       8.. units         @limit
-- OUT   "entered"      fence  claim_ms  at_ms  verdicts(word:bytes x y z)..; at_ms: when counted; per limit, as its own
--                      take answers
--       "again"        fence  claim_ms  at_ms  verdicts(word:bytes x y z)..; the same, of a claim or lease that was the
--                      token's already
--       "mismatch"     0  kept_fp:bytes
--       "finished"     enc:bytes  bytes:bytes
--       "in_progress"  remaining_ms
--       "held"         remaining_ms
--       "limited"      0  claim_ms  now_ms  verdicts(word:bytes x y z)..; per limit, as its own peek answers
--       "stale"        now_ms
--       "malformed"    limit; counted from 1, 0 for the record
--       "conflict"
-- COST  O(limits × their own cost), at most 16; O(n) of a response that is replayed

--@include clock
--@include number
--@include replay
--@include idempotency
--@include lock
--@include limit/fixed_window
--@include limit/sliding_log
--@include limit/sliding_window
--@include limit/token_bucket
--@include limit/any
--@include guard

local token, fp, in_progress_ms, lock_ms, fence_ttl_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local count = (#ARGV - 7) / 7
local at = (in_progress_ms ~= "0" and 1 or 0) + (lock_ms ~= "0" and 4 or 0)
local request = KEYS[at + count + 1]
local now_us = clock_us()
local now_ms = math.floor(now_us / 1000)

local word, x, y, fence = guard_check(KEYS, token, fp, in_progress_ms, lock_ms, now_us, now_ms)
if word ~= "free" and word ~= "ours" then return { word, x, y } end
local reply = { "entered", 0, x, now_ms }
local claimed, counted, known = y, word == "ours", word == "ours" or ARGV[7] == "1"
-- What was counted is counted as long as what was entered lasts: afterwards the same id enters anew.
local kept = request and replay_read(request, "enter", "^#" .. string.rep(" allowed # # #", count) .. "$")
if kept and kept[1] == "conflict" and (known or kept.err) then return kept end
if kept and known then
  for part = 1, 4 * count + 1 do reply[3 + part] = kept[part] end
else
  for index = 1, count do
    local last = 4 + 4 * index
    word, x, y, reply[last] = limit_check(KEYS[at + index], now_us, ARGV, 7 * index + 1)
    if word == "stale" then return { "stale", x } end
    if word == "malformed" then return { "malformed", index } end
    if counted then word = "allowed" end
    if word == "limited" then reply[1] = "limited" end
    reply[last - 3], reply[last - 2], reply[last - 1] = word, x, y
  end
end
local entered = reply[1] == "entered"
if entered then
  if counted then reply[1] = "again" end
  reply[2] = guard_commit(KEYS, token, fp, in_progress_ms, lock_ms, fence_ttl_ms, claimed, fence, now_us, now_ms)
end
if kept and known then return reply end
for index = 1, count do
  local last, key = 4 + 4 * index, KEYS[at + index]
  word, x, y = reply[last - 3], reply[last - 2], reply[last - 1]
  if entered and not counted then
    x, y, reply[last] = limit_commit(key, now_us, ARGV, 7 * index + 1, x, y, reply[last])
  else
    x, y = limit_leave(key, now_us, ARGV, 7 * index + 1, word, x, y, reply[last])
  end
  reply[last - 2], reply[last - 1] = x, y
end
if request and entered then replay_keep_all(request, "enter", ARGV[6], { unpack(reply, 4) }) end
return reply
