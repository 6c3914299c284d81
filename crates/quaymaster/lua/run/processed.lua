-- run.processed: note items as done; each is counted once, however often it is told.
--
-- KEYS  1-9 run       @run
--       10 request?   string      the answer kept for a repeated request_id
--       11-13 index?  @run_index
--       14 counter?   string      the limit's
-- ARGV  1-5 frame    @run
--       6 max_bytes  int>0
--       7 max_items  int>0
--       8 count      int>0   of the items that follow
--       9.. items    each
--           item     text
--           json     json    empty where quotes are enough
--       + pulse?     @pulse
-- OUT   "processed"  added  processed_count  failed_count  beat
--       "missing"
--       "malformed"  key:bytes
--       "foreign"
--       "pulse"
--       "full"
--       "stale"      now_ms
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
local word, x = run_check(KEYS, ARGV, now_us)
if word ~= "go" then return { word, x } end
if redis.call("SCARD", KEYS[3]) + count > max_items then return { "full" } end
local added = run_add(KEYS, ARGV, 9, count, max_bytes)
local beat = run_active(KEYS, ARGV, now_us)
local answer = { "processed", added, redis.call("SCARD", KEYS[3]), redis.call("HLEN", KEYS[5]), beat }
if request then replay_keep_all(request, "processed", ARGV[2], answer) end
return answer
