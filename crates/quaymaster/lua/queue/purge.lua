-- queue.purge: the oldest dead letters are removed.
--
-- KEYS  1 dead      list   dead letters
--       2 request?  string how far a repeated request_id has come
-- ARGV  1 count     int>0  at most 10,000
--       2 keep_ms   int>0  how long a repeated request_id is recognised
-- OUT   "removed"  count
-- COST  O(count)

--@include replay
--@include queue/progress

local kept = KEYS[2] and replay_read(KEYS[2], "purge", "^moved # # # #$")
if kept and kept.err then return kept end
local removed = math.min(redis.call("LLEN", KEYS[1]), ARGV[1] + 0)
redis.call("LTRIM", KEYS[1], ARGV[1], -1)
if KEYS[2] and removed > 0 then queue_progress(KEYS[2], "purge", ARGV[2], kept, removed) end
return { "removed", removed }
