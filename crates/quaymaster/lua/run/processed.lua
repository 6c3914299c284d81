-- run.processed: note items as done; each is counted once, however often it is told.
--
-- KEYS  1.. run     hash    the nine of `inc/run.lua`; then those that the words below name
-- ARGV  1 ttl_ms    int>0   with keep_ms, pulse_ms, request and pulse: see `inc/run.lua`
--       2 keep_ms   int>0
--       3 pulse_ms  int>0
--       4 request   int>=0
--       5 pulse     int>=0
--       6.. own     text    max_bytes, max_items, count, then `count` pairs of item and JSON
-- OUT   "processed"  added  processed_count  failed_count  beat
--       "missing"
--       "malformed"  key
--       "foreign"
--       "pulse"
--       "full"
--       "stale"  now_ms
--       "conflict"
-- COST  O(count); with a pulse what `run.start` costs

--@include clock
--@include replay
--@include number
--@include run

local request = KEYS[tonumber(ARGV[4])]
local max_bytes, max_items, count = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])

if request then
  local kept = replay_read(request, "processed", "^processed # # # #$")
  if kept then return kept end
end
local now_us = clock_us()
local word, now_ms = run_check(KEYS, ARGV, now_us)
if word ~= "go" then return { word, now_ms } end
if redis.call("SCARD", KEYS[3]) + count > max_items then return { "full" } end
local added = run_add(KEYS, ARGV, 9, count, max_bytes)
local beat = run_active(KEYS, ARGV, now_us)
local answer = { "processed", added, redis.call("SCARD", KEYS[3]), redis.call("HLEN", KEYS[5]), beat }
if request then replay_keep_all(request, "processed", ARGV[2], answer) end
return answer
