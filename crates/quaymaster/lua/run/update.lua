-- run.update: set the status and fields of the caller's own.
--
-- KEYS  1-9 run       @run
--       10 request?   string      the answer kept for a repeated request_id
--       11-13 index?  @run_index
--       14 counter?   string      the limit's
-- ARGV  1-5 frame     @run
--       6 stale_ms    int>0
--       7 max_fields  int>0
--       8 count       int>=0  of the fields that follow
--       9.. fields    each
--           name      text
--           value     text
--       + pulse?      @pulse
-- OUT   "updated"    view:any..; as `run.show`
--       "ended"      status:bytes; it is finished; its status is not set
--       "missing"
--       "malformed"  key:bytes
--       "foreign"
--       "pulse"
--       "full"
--       "stale"      now_ms
--       "conflict"
-- COST  O(fields); with a pulse what `run.start` costs

--@include clock
--@include replay
--@include number
--@include run

local request = KEYS[tonumber(ARGV[4])]
local stale_ms, max_fields, count = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])

local now_us = clock_us()
local word, x = run_check(KEYS, ARGV, now_us)
if word ~= "go" then return { word, x } end
if request then
  local kept = replay_read(request, "update", "^updated$")
  if kept and kept[1] == "conflict" then return kept end
  if kept then return run_view(KEYS, ARGV, "updated", now_us, stale_ms) end
end
local names, known, total = redis.call("HGET", KEYS[2], "fields") or "", {}, 0
for name in string.gmatch(names, "[^\n]+") do
  known[name], total = true, total + 1
end
for index = 9, 8 + 2 * count, 2 do
  local name = ARGV[index]
  if name == "status" then
    if redis.call("HEXISTS", KEYS[2], "finished_us") == 1 then
      return { "ended", redis.call("HGET", KEYS[1], "status") }
    end
  elseif not known[name] then
    known[name], total, names = true, total + 1, names .. name .. "\n"
  end
end
if total > max_fields then return { "full" } end
for index = 9, 8 + 2 * count, 2 do redis.call("HSET", KEYS[1], ARGV[index], ARGV[index + 1]) end
if total > 0 then redis.call("HSET", KEYS[2], "fields", names) end
run_active(KEYS, ARGV, now_us)
if request then replay_keep_all(request, "update", ARGV[2], { "updated" }) end
return run_view(KEYS, ARGV, "updated", now_us, stale_ms)
