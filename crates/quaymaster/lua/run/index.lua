-- run.index: say where runs are looked up that one was active; a step of its own where slots part the keys.
--
-- KEYS  1 runs  zset  runs by last activity
--       2 live  zset  those at work
--       3 kept  zset  those with a time of their own, by its milliseconds
-- ARGV  1 id    text
--       2 over  int>=0  1: nothing more is expected of it
--       3 keep  int     how long it is kept by its own start, 0 for as long as the schema says, -1 for as it was
-- OUT   "indexed"
-- COST  O(log n) of runs

--@include clock
--@include run

local runs, live, kept = KEYS[1], KEYS[2], KEYS[3]
local id, over, keep = ARGV[1], ARGV[2], tonumber(ARGV[3])

local now_ms = math.floor(clock_us() / 1000)
redis.call("ZCARD", live)
redis.call("ZCARD", kept)
run_indexed(runs, now_ms, id)
if over == "1" then
  redis.call("ZREM", live, id)
else
  run_indexed(live, now_ms, id)
end
if keep > 0 then
  redis.call("ZADD", kept, ARGV[3], id)
elseif keep == 0 then
  redis.call("ZREM", kept, id)
end
return { "indexed" }
