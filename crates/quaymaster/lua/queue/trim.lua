-- queue.trim: items of a priority queue between two scores are removed, the lowest score first.
--
-- KEYS  1 items     zset    what waits
--       2 meta      hash    switches and counters
--       3 request?  string  how far a repeated request_id has come
-- ARGV  1 min       text    the lowest score, or -inf
--       2 max       text    the highest, or +inf
--       3 count     int>0   at most 10,000
--       4 keep_ms   int>0   how long a repeated request_id is recognised
-- OUT   "removed"  count
-- COST  O(log n + count)

--@include number
--@include replay
--@include queue
--@include queue/progress

local items, meta, min, max, request = KEYS[1], KEYS[2], ARGV[1], ARGV[2], KEYS[3]
local kept = request and replay_read(request, "trim", "^moved # # # #$")
if kept and kept.err then return kept end
redis.call("HLEN", meta)
local removed = math.min(redis.call("ZCOUNT", items, min, max), ARGV[3] + 0)
if removed == 0 then return { "removed", 0 } end
local first = min == "-inf" and 0 or redis.call("ZCOUNT", items, "-inf", "(" .. min)
redis.call("ZREMRANGEBYRANK", items, first, first + removed - 1)
queue_count(meta, "dropped", removed)
if request then queue_progress(request, "trim", ARGV[4], kept, removed) end
return { "removed", removed }
