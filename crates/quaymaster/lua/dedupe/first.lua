-- dedupe.first: whether nobody was here before, and if somebody was, what they left.
--
-- KEYS  1 first     string  the value of the first one
--       2 request?  string  the answer kept for a repeated request_id
-- ARGV  1 value     bytes
--       2 ttl_ms    int>0
--       3 start_ms  int>=0  the bucket in the key, 0 without one
--       4 end_ms    int>=0
--       5 keep_ms   int>0   how long a repeated request_id is recognised
-- OUT   "first"
--       "duplicate"  value:bytes
--       "stale"      now_ms
--       "conflict"
-- COST  O(n) of the value

--@include clock
--@include replay
--@include dedupe

local first, request = KEYS[1], KEYS[2]
local value, ttl_ms, keep_ms = ARGV[1], ARGV[2], ARGV[5]
local start_ms, end_ms = ARGV[3], ARGV[4]

if request then
  local kept = replay_read(request, "first", "^first$")
  if kept then return kept end
end
local now_us = end_ms ~= "0" and clock_us() or 0
local word, now_ms, held = dedupe_check(first, ttl_ms, start_ms, end_ms, now_us)
if word == "stale" then return { "stale", now_ms } end
if word == "duplicate" then return { "duplicate", held } end
redis.call("SET", first, value, "PX", ttl_ms)
if request then replay_keep_all(request, "first", keep_ms, { "first" }) end
return { "first" }
