-- run.show: a run as it is, and its documented hash brought up to date. No sign of life.
--
-- KEYS  1.. run     hash    the nine of `inc/run.lua`; then those that the words below name
-- ARGV  1 ttl_ms    int>0   with keep_ms, pulse_ms, request and pulse: see `inc/run.lua`
--       2 keep_ms   int>0
--       3 pulse_ms  int>0
--       4 request   int>=0
--       5 pulse     int>=0
--       6.. own     text    stale_ms, items (1: render the documented list too)
-- OUT   "shown"  now_us  start_us  active_us  finished_us  over  stale  status  start_time  hour  calls  keys  processed_count  failed_count  bytes  cut  tasks_total  fields  name value …  task times …
--       "missing"
--       "malformed"  key
--       "foreign"
--       "stale"  now_ms
-- COST  O(tasks shown), at most a thousand; O(n) of the run's list when it is rendered

--@include clock
--@include number
--@include run

local stale_ms, items = ARGV[6], ARGV[7]

local now_us = clock_us()
local word, now_ms = run_check(KEYS, ARGV, now_us)
if word ~= "go" then return { word, now_ms } end
-- What was counted in the hour of its end stays.
if not run_over(KEYS) then run_hour(KEYS, ARGV) end
if items == "1" and redis.call("HGET", KEYS[2], "bytes") ~= redis.call("HGET", KEYS[2], "rendered") then
  run_render(KEYS, now_us)
end
return run_view(KEYS, "shown", now_us, stale_ms)
