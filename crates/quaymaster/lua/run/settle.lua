-- run.settle: what a sweep found out about a run, for the indexes; nothing if it was active since.
--
-- KEYS  1 runs  zset  runs by last activity
--       2 live  zset  those at work
--       3 kept  zset  those with a time of their own, by its milliseconds
-- ARGV  1 id         text
--       2 seen       int>=0  when it was active, by the index that was read
--       3 word       text    what `run.sweep` said
--       4 active_ms  int>=0
-- OUT   "settled"
-- COST  O(log n) of runs

--@include number

local runs, live, kept = KEYS[1], KEYS[2], KEYS[3]
local id, seen, word, active_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

redis.call("ZCARD", kept)
local held = { redis.call("ZSCORE", runs, id), redis.call("ZSCORE", live, id) }
if held[1] and number_score(held[1]) == seen then
  if word == "gone" then
    redis.call("ZREM", runs, id)
    redis.call("ZREM", kept, id)
  elseif seen > tonumber(active_ms) + 60000 then
    redis.call("ZADD", runs, active_ms, id)
  end
end
if held[2] and number_score(held[2]) == seen then
  if word == "fresh" then
    redis.call("ZADD", live, active_ms, id)
  else
    redis.call("ZREM", live, id)
  end
end
return { "settled" }
