-- run.show: a run as it is, and its documented hash brought up to date. No sign of life.
--
-- KEYS  1-9 run       @run
--       10-12 index?  @run_index
--       13 counter?   string      the limit's
-- ARGV  1-5 frame    @run
--       6 stale_ms   int>0
--       7 items      int>=0  1: render the documented list too
--       8-17 pulse?  @pulse
-- OUT   "shown"      view:any..; now_us start_us active_us finished_us over stale status start_time hour calls keys
--                    peak_calls peak_hour processed_count failed_count bytes cut tasks_total fields, then name value of each field, then
--                    task times of each task
--       "missing"
--       "malformed"  key:bytes
--       "foreign"
--       "pulse"
--       "stale"      now_ms
-- COST  O(tasks shown), at most a thousand; O(n) of the run's list when it is rendered

--@include clock
--@include number
--@include run

local stale_ms, items = ARGV[6], ARGV[7]

local now_us = clock_us()
local word, x = run_check(KEYS, ARGV, now_us)
if word ~= "go" then return { word, x } end
-- What was counted in the hour of its end stays.
if not run_over(KEYS) then run_hour(KEYS, ARGV) end
if items == "1" and redis.call("HGET", KEYS[2], "bytes") ~= redis.call("HGET", KEYS[2], "rendered") then
  run_render(KEYS, ARGV[ARGV[5] + 9], now_us)
end
return run_view(KEYS, ARGV, "shown", now_us, stale_ms)
