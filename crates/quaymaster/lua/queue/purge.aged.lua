-- queue.purge.aged: these dead letters are removed; only those that are still where they were read.
--
-- KEYS  1 dead       list   dead letters
--       2 request?   string how far a repeated request_id has come
-- ARGV  1 stone      bytes   what stands in a removed letter's place for the rest of this script
--       2 keep_ms    int>0   how long a repeated request_id is recognised
--       3.. letters  each    at most 1000
--           index    int>=0
--           letter   bytes
-- OUT   "removed"  count
-- COST  O(letters), and the way to the last index

--@include replay
--@include queue/progress

local kept = KEYS[2] and replay_read(KEYS[2], "purge", "^moved # # # #$")
if kept and kept.err then return kept end
local dead, stone, removed = KEYS[1], ARGV[1], 0
-- A store without memory refuses LSET, unless something was written before that cannot grow.
redis.call("LTRIM", dead, 0, -1)
for at = 3, #ARGV, 2 do
  if redis.call("LINDEX", dead, ARGV[at]) == ARGV[at + 1] then
    redis.call("LSET", dead, ARGV[at], stone)
    removed = removed + 1
  end
end
if removed > 0 then
  redis.call("LREM", dead, removed, stone)
  if KEYS[2] then queue_progress(KEYS[2], "purge", ARGV[2], kept, removed) end
end
return { "removed", removed }
