-- run.task_start: note when a task began; the first time counts until it is finished.
--
-- KEYS  1.. run     hash    the nine of `inc/run.lua`; then those that the words below name
-- ARGV  1 ttl_ms    int>0   with keep_ms, pulse_ms, request and pulse: see `inc/run.lua`
--       2 keep_ms   int>0
--       3 pulse_ms  int>0
--       4 request   int>=0
--       5 pulse     int>=0
--       6.. own     text    task, key (which key the task's is), max_tasks
-- OUT   "started"  start_us  beat
--       "missing"
--       "malformed"  key
--       "foreign"
--       "full"
--       "stale"  now_ms
--       "conflict"
-- COST  O(log n) of tasks; with a pulse what `run.start` costs

--@include clock
--@include iso
--@include replay
--@include number
--@include run

local request = KEYS[tonumber(ARGV[4])]
local task, key, max_tasks = ARGV[6], KEYS[tonumber(ARGV[7])], tonumber(ARGV[8])

if request then
  local kept = replay_read(request, "task_start", "^started # #$")
  if kept then return kept end
end
local now_us = clock_us()
local word, now_ms = run_check(KEYS, ARGV, now_us)
if word ~= "go" then return { word, now_ms } end
local held = redis.call("HGET", KEYS[8], task)
local start = held and string.match(held, "^(%d+) %-$")
if held and not number_read(start or string.match(held, "^%d+ (%d+)$")) then return { "malformed", KEYS[8] } end
redis.call("GET", key)
if not held and redis.call("HLEN", KEYS[8]) >= max_tasks then return { "full" } end
if not start then
  start = string.format("%.0f", now_us)
  redis.call("HSET", KEYS[8], task, start .. " -")
  redis.call("ZADD", KEYS[9], start, task)
end
redis.call("SET", key, iso_text(tonumber(start)), "PX", ARGV[1])
local beat = run_active(KEYS, ARGV, now_us)
local answer = { "started", start, beat }
if request then replay_keep_all(request, "task_start", ARGV[2], answer) end
return answer
