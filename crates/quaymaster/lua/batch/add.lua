-- batch.add: put an item into the open batch, or begin one with it.
--
-- KEYS  1.. add     string  the fourteen keys of `inc/batch.lua`; then, if there is a request_id, its record
-- ARGV  1 keep_ms   int>0   how long a repeated request_id is recognised
--       2.. add     text    the eleven words of `inc/batch.lua`
-- OUT   "added"      size  sealed  =id  sealed: 1 when it takes no more and is to be queued
--       "duplicate"  size  0  =id
--       "elsewhere"  id
--       "foreign"    id
--       "malformed"  key
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
