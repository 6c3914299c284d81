-- run.finish: end a run; a second time with the same status is the first time.
--
-- KEYS  1.. run     hash    the nine of `inc/run.lua`; then those that the words below name
-- ARGV  1 ttl_ms    int>0   with keep_ms, pulse_ms, request and pulse: see `inc/run.lua`
--       2 keep_ms   int>0
--       3 pulse_ms  int>0
--       4 request   int>=0
--       5 pulse     int>=0
--       6.. own     text    status, stale_ms
-- OUT   "finished"  and so on as `run.show`
--       "ended"     status  it is finished, with another one
--       "missing"
--       "malformed"  key
--       "foreign"
--       "stale"  now_ms
--       "conflict"
-- COST  O(n) of the run's list

--@include clock
--@include replay
--@include number
--@include run

local request = KEYS[tonumber(ARGV[4])]
local status, stale_ms = ARGV[6], ARGV[7]

local now_us = clock_us()
local word, now_ms = run_check(KEYS, ARGV, now_us)
if word ~= "go" then return { word, now_ms } end
if request then
  local kept = replay_read(request, "finish", "^finished$")
  if kept and kept[1] == "conflict" then return kept end
  if kept then return run_view(KEYS, "finished", now_us, stale_ms) end
end
if redis.call("HEXISTS", KEYS[2], "finished_us") == 1 then
  local held = redis.call("HGET", KEYS[1], "status")
  if held ~= status then return { "ended", held } end
else
  run_hour(KEYS, ARGV)
  redis.call("HSET", KEYS[1], "status", status)
  redis.call("HSET", KEYS[2], "finished_us", string.format("%.0f", now_us))
  run_active(KEYS, ARGV, now_us)
end
if redis.call("HGET", KEYS[2], "bytes") ~= redis.call("HGET", KEYS[2], "rendered") then run_render(KEYS, now_us) end
if request then replay_keep_all(request, "finish", ARGV[2], { "finished" }) end
return run_view(KEYS, "finished", now_us, stale_ms)
