-- run.finish: end a run; a second time with the same status is the first time.
--
-- KEYS  1-9 run       @run
--       10 request?   string      the answer kept for a repeated request_id
--       11-13 index?  @run_index
--       14 counter?   string      the limit's
-- ARGV  1-5 frame    @run
--       6 status     text
--       7 stale_ms   int>0
--       8-17 pulse?  @pulse
-- OUT   "finished"   view:any..; as `run.show`
--       "ended"      status:bytes; it is finished, with another one
--       "missing"
--       "malformed"  key:bytes
--       "foreign"
--       "pulse"
--       "stale"      now_ms
--       "conflict"
-- COST  O(n) of the run's list

--@include clock
--@include replay
--@include number
--@include run

local request = KEYS[tonumber(ARGV[4])]
local status, stale_ms = ARGV[6], ARGV[7]

local now_us = clock_us()
local word, x = run_check(KEYS, ARGV, now_us)
if word ~= "go" then return { word, x } end
if request then
  local kept = replay_read(request, "finish", "^finished$")
  if kept and kept[1] == "conflict" then return kept end
  if kept then return run_view(KEYS, ARGV, "finished", now_us, stale_ms) end
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
if redis.call("HGET", KEYS[2], "bytes") ~= redis.call("HGET", KEYS[2], "rendered") then run_render(KEYS, ARGV[ARGV[5] + 9], now_us) end
if request then replay_keep_all(request, "finish", ARGV[2], { "finished" }) end
return run_view(KEYS, ARGV, "finished", now_us, stale_ms)
