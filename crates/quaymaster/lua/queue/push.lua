-- queue.push: add items at the end, all or none; move or drop the oldest of a full queue, or refuse.
--
-- KEYS  1-7 queue    @queue
--       8 id?        string  what remembers the caller's id
--       9 first?     string  the dedupe's
--       10 request?  string  the answer kept for a repeated request_id
-- ARGV  1- add        @queue
--       + marks?      each    only with more keys
--           letters   text    which keys there are: i, d and r
--           id_ms     int>0   how long the id is remembered; 0 and empty words stand for what there is not
--           value     bytes   what the dedupe keeps
--           ttl_ms    int>=0  for how long
--           start_ms  int>=0  the bucket in the dedupe's key, 0 without one
--           end_ms    int>=0
--           keep_ms   int>0   how long a repeated request_id is recognised
-- OUT   "pushed"     accepted  length  moved  dropped
--       "duplicate"  0  length  0  0
--       "full"       0  length  0  0
--       "stale"      now_ms
--       "conflict"
-- COST  O(count), and O(log n) each for a priority queue; sheds at most count + 1000

--@include clock
--@include number
--@include replay
--@include dedupe
--@include queue

local now_us = clock_us()
local at, marks = 8, ""
local id, first, request
local more = 7 + ARGV[6]
if #KEYS > 7 then
  marks = ARGV[more]
  if string.find(marks, "i", 1, true) then id, at = KEYS[at], at + 1 end
  if string.find(marks, "d", 1, true) then first, at = KEYS[at], at + 1 end
  if string.find(marks, "r", 1, true) then request = KEYS[at] end
end
if request then
  local kept = replay_read(request, "push", "^pushed # # # #$")
  if kept then return kept end
end
local known = id and redis.call("EXISTS", id) == 1
if first then
  local seen, now_ms = dedupe_check(first, ARGV[more + 3], ARGV[more + 4], ARGV[more + 5], now_us)
  if seen == "stale" then return { "stale", now_ms } end
  if seen == "duplicate" then known = true end
end
if known then return { "duplicate", 0, queue_length(KEYS[1], ARGV[1]), 0, 0 } end
local word, waiting, pushed, stamped, number = queue_fits(KEYS, 1, ARGV, 1, {}, now_us)
if word == "full" then return { "full", 0, waiting, 0, 0 } end
local length, moved, dropped = queue_add(KEYS, 1, ARGV, 1, now_us, waiting, pushed, stamped, number)
if id then redis.call("SET", id, "1", "PX", ARGV[more + 1]) end
if first then redis.call("SET", first, ARGV[more + 2], "PX", ARGV[more + 3]) end
local count = ARGV[6] + 0
if request then replay_keep_all(request, "push", ARGV[more + 6], { "pushed", count, length, moved, dropped }) end
return { "pushed", count, length, moved, dropped }
