-- run.task_finish: note how long a task took; a second time is the first time.
--
-- KEYS  1-9 run       @run
--       10 request?   string      the answer kept for a repeated request_id
--       11 started    string      when the task began, as others read it
--       12-14 index?  @run_index
--       15 counter?   string      the limit's
-- ARGV  1-5 frame     @run
--       6 task        text
--       7 started_at  int>0   which key the task's is
--       8 given       text    its start as another program has it, "" for none
--       9-18 pulse?   @pulse
-- OUT   "finished"   duration_us  beat
--       "elsewhere"  text:bytes; when it started, as another program has written it
--       "untimed"
--       "missing"
--       "malformed"  key:bytes
--       "foreign"
--       "pulse"
--       "stale"      now_ms
--       "conflict"
-- COST  O(log n) of tasks; with a pulse what `run.start` costs

--@include clock
--@include replay
--@include number
--@include run

local request = KEYS[tonumber(ARGV[4])]
local task, key, given = ARGV[6], KEYS[tonumber(ARGV[7])], ARGV[8]

if request then
  local kept = replay_read(request, "task_finish", "^finished # #$")
  if kept then return kept end
end
local now_us = clock_us()
local word, x = run_check(KEYS, ARGV, now_us)
if word ~= "go" then return { word, x } end
local held = redis.call("HGET", KEYS[8], task)
if not held and given ~= "" then
  held = given .. " -"
elseif not held then
  local text = redis.call("GET", key)
  if text then return { "elsewhere", text } end
  return { "untimed" }
end
local start, took = string.match(held, "^(%d+) (%S+)$")
if not number_read(start) or (took ~= "-" and not number_read(took)) then return { "malformed", KEYS[8] } end
if took == "-" then
  took = string.format("%.0f", math.max(now_us - start, 0))
  redis.call("HSET", KEYS[8], task, start .. " " .. took)
  redis.call("ZADD", KEYS[9], start, task)
end
local beat = run_active(KEYS, ARGV, now_us)
local answer = { "finished", took, beat }
if request then replay_keep_all(request, "task_finish", ARGV[2], answer) end
return answer
