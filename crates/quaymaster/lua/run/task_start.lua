-- run.task_start: note when a task began; the first time counts until it is finished.
--
-- KEYS  1-9 run       @run
--       10 request?   string      the answer kept for a repeated request_id
--       11 started    string      when the task began, as others read it
--       12-14 index?  @run_index
--       15 counter?   string      the limit's
-- ARGV  1-5 frame     @run
--       6 task        text
--       7 started_at  int>0   which key the task's is
--       8 max_tasks   int>0
--       9-18 pulse?   @pulse
-- OUT   "started"    start_us  beat
--       "missing"
--       "malformed"  key:bytes
--       "foreign"
--       "pulse"
--       "full"
--       "stale"      now_ms
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
local word, x = run_check(KEYS, ARGV, now_us)
if word ~= "go" then return { word, x } end
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
redis.call("SET", key, iso_text(tonumber(start)), "PX", run_ttl(KEYS, ARGV))
local beat = run_active(KEYS, ARGV, now_us)
local answer = { "started", start, beat }
if request then replay_keep_all(request, "task_start", ARGV[2], answer) end
return answer
