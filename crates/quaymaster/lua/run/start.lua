-- run.start: begin a run, or go on with it; never wipes one.
--
-- KEYS  1.. run     hash    the nine of `inc/run.lua`; then those that the words below name
-- ARGV  1 ttl_ms    int>0   with keep_ms, pulse_ms, request and pulse: see `inc/run.lua`
--       2 keep_ms   int>0
--       3 pulse_ms  int>0
--       4 request   int>=0
--       5 pulse     int>=0
--       6.. own     text    id_field, id, fresh (1: only if there is none), read (length of the foreign list adopted), stale_ms
-- OUT   "started"  and so on as `run.show`
--       "resumed"  and so on
--       "exists"
--       "malformed"  key
--       "foreign"  text  the list of items of a run begun by another program, to be adopted first
--       "stale"    now_ms
--       "conflict"
-- COST  O(log n) of runs, and of the run's list when it is rendered

--@include clock
--@include iso
--@include replay
--@include number
--@include run

local request = KEYS[tonumber(ARGV[4])]
local id_field, id, fresh, read, stale_ms = ARGV[6], ARGV[7], ARGV[8], tonumber(ARGV[9]), ARGV[10]

local now_us = clock_us()
local word, now_ms = run_check(KEYS, ARGV, now_us)
if word == "stale" or word == "malformed" then return { word, now_ms } end
local kept = request and replay_read(request, "start", "^started$", "^resumed$")
if kept and kept.err then return kept end
-- A run that has expired since is begun anew.
if kept and word ~= "missing" then
  if kept[1] == "conflict" then return kept end
  return run_view(KEYS, kept[1], now_us, stale_ms)
end
if fresh == "1" and word ~= "missing" then return { "exists" } end
local begun = redis.call("HEXISTS", KEYS[2], "active_us") == 1
if word == "foreign" and not begun then
  local text = redis.call("HGET", KEYS[1], "dockets_processed") or "[]"
  if text ~= "[]" and #text ~= read then return { "foreign", text } end
end
local outcome = word == "missing" and "started" or "resumed"
local start_us = redis.call("HGET", KEYS[2], "start_us") or string.format("%.0f", now_us)
if word ~= "go" then
  redis.call("HSETNX", KEYS[1], id_field, id)
  redis.call("HSETNX", KEYS[1], "start_time", iso_text(tonumber(start_us)))
  redis.call("HSETNX", KEYS[1], "status", "running")
  redis.call("HSETNX", KEYS[1], "dockets_processed", "[]")
  redis.call("HSET", KEYS[2], "start_us", start_us)
  -- A list that was rendered into a hash that is gone is to be rendered again.
  redis.call("HDEL", KEYS[2], "rendered")
end
if run_over(KEYS) then
  redis.call("HSET", KEYS[1], "status", "running")
  redis.call("HDEL", KEYS[2], "finished_us")
end
run_active(KEYS, ARGV, now_us)
if request then replay_keep_all(request, "start", ARGV[2], { outcome }) end
return run_view(KEYS, outcome, now_us, stale_ms)
