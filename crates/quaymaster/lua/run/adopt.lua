-- run.adopt: take over items that another program lists as processed, before the run is gone on with.
--
-- KEYS  1.. run     hash    the nine of `inc/run.lua`
-- ARGV  1 ttl_ms    int>0   with keep_ms, pulse_ms, request and pulse: see `inc/run.lua`
--       2 keep_ms   int>0
--       3 pulse_ms  int>0
--       4 request   int>=0
--       5 pulse     int>=0
--       6.. own     text    max_bytes, count, then `count` pairs of item and JSON
-- OUT   "adopted"  added
--       "begun"
--       "malformed"  key
-- COST  O(count)

--@include number
--@include run

if redis.call("HEXISTS", KEYS[2], "active_us") == 1 or redis.call("EXISTS", KEYS[1]) == 0 then return { "begun" } end
local _, spoiled = run_meta(KEYS)
if spoiled then return { "malformed", spoiled } end
run_touch(KEYS, ARGV, 0)
redis.call("SCARD", KEYS[3])
local added = run_add(KEYS, ARGV, 8, tonumber(ARGV[7]), tonumber(ARGV[6]))
redis.call("PEXPIRE", KEYS[2], ARGV[1])
return { "adopted", added }
