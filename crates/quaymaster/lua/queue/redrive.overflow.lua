-- queue.redrive.overflow: items that were moved out of a full queue go back, the oldest first, as many as fit.
--
-- KEYS  1-7 queue   @queue
--       8 request?  string  how far a repeated request_id has come
-- ARGV  1 order      text   fifo or priority; a priority is not kept by the overflow list: it is 0
--       2 max_size   int>=0 0 for any number
--       3 count      int>0  at most 1000
--       4 keep_ms    int>0  how long a repeated request_id is recognised
-- OUT   "moved"  count  full; full: 1 when the queue had no room for the rest
-- COST  O(count)

--@include clock
--@include number
--@include replay
--@include queue
--@include queue/progress

local kept = KEYS[8] and replay_read(KEYS[8], "redrive", "^moved # # # #$")
if kept and kept.err then return kept end
local now_us = clock_us()
local overflow = KEYS[4]
local moved, full, last = 0, 0, nil
local words = { ARGV[1], ARGV[2], "reject", "0", "0", "1", "" }
redis.call("LLEN", overflow)
for _ = 1, ARGV[3] do
  local word, waiting, pushed, stamped, number = queue_fits(KEYS, 1, words, 1, {}, now_us, last and last + 1)
  if word == "full" then full = 1 end
  local item = full == 0 and redis.call("LPOP", overflow)
  if not item then break end
  words[7] = item
  queue_add(KEYS, 1, words, 1, now_us, waiting, pushed, stamped, number)
  moved, last = moved + 1, number
end
if redis.call("LLEN", overflow) == 0 then full = 0 end
if moved > 0 then
  queue_count(KEYS[2], "redriven", moved)
  if KEYS[8] then queue_progress(KEYS[8], "redrive", ARGV[4], kept, moved) end
end
return { "moved", moved, full }
