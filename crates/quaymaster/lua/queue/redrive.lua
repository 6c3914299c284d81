-- queue.redrive: dead letters become jobs again, as many as fit; only those that are still where they were read.
--
-- KEYS  1-7 queue   @queue
--       8 dead      list    dead letters
--       9 request?  string  how far a repeated request_id has come
-- ARGV  1 order      text    fifo or priority
--       2 max_size   int>=0  0 for any number
--       3 stone      bytes   what stands in a removed letter's place for the rest of this script
--       4 keep_ms    int>0   how long a repeated request_id is recognised
--       5.. letters  each    at most 1000
--           index    int>=0
--           letter   bytes
--           score    text
--           item     bytes
-- OUT   "moved"  count  full; full: 1 when the queue had no room for the rest
-- COST  O(letters), and the way to the last index

--@include clock
--@include number
--@include replay
--@include queue
--@include queue/progress

local kept = KEYS[9] and replay_read(KEYS[9], "redrive", "^moved # # # #$")
if kept and kept.err then return kept end
local dead, stone = KEYS[8], ARGV[3]
local now_us = clock_us()
redis.call("LLEN", dead)
local moved, full, last = 0, 0, nil
local words = { ARGV[1], ARGV[2], "reject", "0", "0", "1", "" }
for at = 5, #ARGV, 4 do
  if redis.call("LINDEX", dead, ARGV[at]) == ARGV[at + 1] then
    words[5], words[7] = ARGV[at + 2], ARGV[at + 3]
    local word, waiting, pushed, stamped, number = queue_fits(KEYS, 1, words, 1, {}, now_us, last and last + 1)
    if word == "full" then
      full = 1
      break
    end
    queue_add(KEYS, 1, words, 1, now_us, waiting, pushed, stamped, number)
    redis.call("LSET", dead, ARGV[at], stone)
    moved, last = moved + 1, number
  end
end
if moved > 0 then
  redis.call("LREM", dead, moved, stone)
  queue_count(KEYS[2], "redriven", moved)
  if KEYS[9] then queue_progress(KEYS[9], "redrive", ARGV[4], kept, moved) end
end
return { "moved", moved, full }
