-- batch.add: put an item into the open batch, or begin one with it.
--
-- KEYS  1-14 batch   @batch
--       15 request?  string  the answer kept for a repeated request_id
-- ARGV  1 keep_ms  int>0   how long a repeated request_id is recognised
--       2-12 add   @batch
-- OUT   "added"      size  sealed  id:bytes; sealed: 1 when it takes no more and is to be queued; id: with = in front
--       "duplicate"  size  0  id:bytes
--       "elsewhere"  id:bytes
--       "foreign"    id:bytes
--       "malformed"  key:bytes
--       "full"       0
--       "conflict"
-- COST  O(log n) of open batches; on the embedded store O(n) of the list

--@include clock
--@include replay
--@include number
--@include batch

local request, keep_ms, guess = KEYS[15], ARGV[1], ARGV[2]

if request then
  local kept = replay_read(request, "add", "^added # # =$")
  if kept then return kept end
end
local now_us = clock_us()
local word, x = batch_check(KEYS, 1, ARGV, 2, now_us)
if word == "duplicate" then return { "duplicate", x, 0, "=" .. guess } end
if word ~= "add" and word ~= "new" then return { word, x } end
local id, size, sealed = batch_commit(KEYS, 1, ARGV, 2, now_us, word)
local answer = { "added", size, sealed, "=" .. id }
if request then replay_keep_all(request, "add", keep_ms, answer) end
return answer
