-- queue.ack.then: jobs are done and what follows from them happens, all or nothing; then the next are handed out.
--
-- KEYS  1-8 queue    @claim
--       9.. targets  any     the keys of each part in order: of a push seven, of a batch fourteen, of a publish none
--       + request?   string  the answer kept for a repeated request_id
-- ARGV  1-8 terms     @claim
--       9 keep_ms     int>0    how long a repeated request_id is recognised
--       10 asked      text     1 with a request
--       11 count      int>0    of parts, at most 100
--       12.. parts    each
--           kind      text     push, batch or publish
--           count     int>0    how many words follow
--           .. words  bytes
--       +.. given     @leases  at most 1000 ids
-- OUT   "acked"     acked  given  tales  claim:any..; of each batch part sealed id, with = in front, of each push that
--                   dropped items part dropped and nothing; then what queue.claim answers
--       "lost"      0  lost  tales  claim:any..; the same, without any tale
--       "refused"   part  why:bytes  said:any; what the batch said
--       "conflict"
-- COST  O((ids + count + what is added) log n)

--@include clock
--@include number
--@include replay
--@include queue
--@include queue/lease
--@include queue/record
--@include queue/claim
--@include batch
--@include queue/then

local token, parts = ARGV[4], ARGV[11] + 0
local request = ARGV[10] == "1" and KEYS[#KEYS]
local now_us = clock_us()
local now_ms = math.floor(now_us / 1000)
local reply, messages = { "acked", 0, 0 }, {}
if request then
  local kept = replay_read(request, "ack", "^acked # #[#~= ]*$")
  if kept then
    if kept[1] == "conflict" then return kept end
    reply[2], reply[3], reply[4] = kept[2], kept[3], 0
    queue_still(KEYS, 1, token, queue_ids(kept, 4), now_ms, reply)
    return reply
  end
end
queue_sound(KEYS, 1, ARGV[1])
local leases_at, numbers, refused, why, said = queue_then_check(KEYS, 9, ARGV, 12, parts, now_us)
local ours, given = queue_held(KEYS[6], KEYS[8], ARGV, leases_at, now_ms)
if ours < given then
  reply[1], reply[3], reply[4] = "lost", given - ours, 0
elseif refused > 0 then
  return { "refused", refused, why, said }
else
  reply[2], reply[3] = queue_done(KEYS[5], KEYS[6], KEYS[8], KEYS[2], ARGV, leases_at, #ARGV, now_ms)
  messages = queue_then_do(KEYS, 9, ARGV, 12, parts, numbers, now_us, reply)
end
local ids, head = {}, #reply + 1
if ARGV[2] ~= "0" and queue_claim(KEYS, 1, ARGV, 1, now_us, reply) > 0 then ids = queue_claimed(reply, head) end
if request and reply[1] == "acked" then
  replay_keep_all(request, "ack", ARGV[9], { "acked", reply[2], reply[3], unpack(ids) })
elseif request and #ids > 0 then
  -- Nothing was acked, and the next jobs were handed out: once, however often it is asked.
  replay_keep_all(request, "ack", ARGV[9], { "acked", 0, reply[3], unpack(ids) })
end
for at = 1, #messages, 2 do redis.pcall("PUBLISH", messages[at], messages[at + 1]) end
return reply
