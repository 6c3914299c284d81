-- run.adopt: take over items that another program lists as processed, before the run is gone on with.
--
-- KEYS  1-9 run  @run
-- ARGV  1-5 frame    @run
--       6 max_bytes  int>0
--       7 count      int>0  of the items that follow
--       8.. items    each
--           item     text
--           json     json   empty where quotes are enough
-- OUT   "adopted"    added
--       "begun"
--       "malformed"  key:bytes
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
