-- batch.seal: let the open batch take no more, so that it can be queued.
--
-- KEYS  1 current   string  the open batch's id
--       2 open      zset    batch ids by the millisecond they close
--       3 request?  string  the answer kept for a repeated request_id
-- ARGV  1 keep_ms   int>0   how long a repeated request_id is recognised
-- OUT   "sealed"     id:bytes; with = in front
--       "none"
--       "malformed"  key:bytes
--       "conflict"
-- COST  O(log n) of open batches

--@include clock
--@include replay

local current, open, request = KEYS[1], KEYS[2], KEYS[3]
local keep_ms = ARGV[1]

if request then
  local kept = replay_read(request, "close", "^sealed =$")
  if kept then return kept end
end
local id = redis.call("GET", current)
if not id then return { "none" } end
if id == "" or string.find(id, "[%s%c{}*?%[%]]") then return { "malformed", current } end
redis.call("ZSCORE", open, id)
local now_ms = math.floor(clock_us() / 1000)
redis.call("DEL", current)
redis.call("ZADD", open, string.format("%.0f", now_ms), id)
local answer = { "sealed", "=" .. id }
if request then replay_keep_all(request, "close", keep_ms, answer) end
return answer
