-- run.start: begin a run, or go on with it; never wipes one.
--
-- KEYS  1-9 run       @run
--       10 request?   string      the answer kept for a repeated request_id
--       11-13 index?  @run_index
--       14 counter?   string      the limit's
-- ARGV  1-5 frame     @run
--       6 id_field    text
--       7 id          text
--       8 fresh       int>=0  1: only if there is none
--       9 read        int     length of the foreign list adopted, -1 for none
--       10 stale_ms   int>0
--       11 kept_ms    int>=0  how long it is kept, 0 for what the schema says or what was said before
--       12-21 pulse?  @pulse
-- OUT   "started"    view:any..; as `run.show`
--       "resumed"    view:any..
--       "exists"
--       "malformed"  key:bytes
--       "foreign"    list:bytes; the items of a run begun by another program, to be adopted first
--       "stale"      now_ms
--       "conflict"
-- COST  O(log n) of runs, and of the run's list when it is rendered

--@include clock
--@include iso
--@include replay
--@include number
--@include run

local request = KEYS[tonumber(ARGV[4])]
local id_field, id, fresh, read, stale_ms = ARGV[6], ARGV[7], ARGV[8], tonumber(ARGV[9]), ARGV[10]
local kept_ms, list_field = ARGV[11], ARGV[21]

local now_us = clock_us()
local word, x = run_check(KEYS, ARGV, now_us)
if word == "stale" or word == "malformed" then return { word, x } end
local kept = request and replay_read(request, "start", "^started$", "^resumed$")
if kept and kept.err then return kept end
-- A run that has expired since is begun anew.
if kept and word ~= "missing" then
  if kept[1] == "conflict" then return kept end
  return run_view(KEYS, ARGV, kept[1], now_us, stale_ms)
end
if fresh == "1" and word ~= "missing" then return { "exists" } end
local begun = redis.call("HEXISTS", KEYS[2], "active_us") == 1
if word == "foreign" and not begun then
  local text = redis.call("HGET", KEYS[1], list_field) or "[]"
  if text ~= "[]" and #text ~= read then return { "foreign", text } end
end
local outcome = word == "missing" and "started" or "resumed"
local start_us = redis.call("HGET", KEYS[2], "start_us") or string.format("%.0f", now_us)
if word ~= "go" then
  redis.call("HSETNX", KEYS[1], id_field, id)
  redis.call("HSETNX", KEYS[1], "start_time", iso_text(tonumber(start_us)))
  redis.call("HSETNX", KEYS[1], "status", "running")
  redis.call("HSETNX", KEYS[1], list_field, "[]")
  redis.call("HSET", KEYS[2], "start_us", start_us)
  -- A list that was rendered into a hash that is gone is to be rendered again.
  redis.call("HDEL", KEYS[2], "rendered")
end
if run_over(KEYS) then
  redis.call("HSET", KEYS[1], "status", "running")
  redis.call("HDEL", KEYS[2], "finished_us")
end
local at = tonumber(ARGV[ARGV[5] + 5])
if kept_ms ~= "0" then
  redis.call("HSET", KEYS[2], "ttl_ms", kept_ms)
  if at > 0 then redis.call("ZADD", KEYS[at + 2], kept_ms, id) end
elseif outcome == "started" and at > 0 then
  redis.call("ZREM", KEYS[at + 2], id)
end
run_active(KEYS, ARGV, now_us)
if request then replay_keep_all(request, "start", ARGV[2], { outcome }) end
return run_view(KEYS, ARGV, outcome, now_us, stale_ms)
