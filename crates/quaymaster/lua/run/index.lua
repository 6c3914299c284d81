-- run.index: say where runs are looked up that one was active; a step of its own where slots part the keys.
--
-- KEYS  1 runs  zset  runs by last activity
--       2 live  zset  those at work
-- ARGV  1 id    text
--       2 over  int>=0  1: nothing more is expected of it
-- OUT   "indexed"
-- COST  O(log n) of runs

--@include clock
--@include run

local runs, live = KEYS[1], KEYS[2]
local id, over = ARGV[1], ARGV[2]

local now_ms = math.floor(clock_us() / 1000)
redis.call("ZCARD", live)
run_indexed(runs, now_ms, id)
if over == "1" then
  redis.call("ZREM", live, id)
else
  run_indexed(live, now_ms, id)
end
return { "indexed" }
