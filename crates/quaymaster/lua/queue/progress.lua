-- queue.progress: how far a call of many steps has come, or that it is done.
--
-- KEYS  1 request  string  its record
-- ARGV  1 op       text    redrive, purge or trim
--       2 keep_ms  int>0   how long a repeated request_id is recognised
--       3 done     text    1 to keep the answer that follows
--       4 total    int>=0
--       5 left     int>=0
--       6 full     int>=0
-- OUT   "progress"  total  left  full  done
--       "conflict"
-- COST  O(1)

--@include replay

local request, op = KEYS[1], ARGV[1]
local kept = replay_read(request, op, "^moved # # # #$")
if kept and kept[1] == "conflict" then return kept end
if ARGV[3] == "1" then
  kept = { "moved", ARGV[4] + 0, ARGV[5] + 0, ARGV[6] + 0, 1 }
  -- First what frees memory: a store that has none left keeps the answer then.
  redis.call("DEL", request)
  replay_keep_all(request, op, ARGV[2], kept)
end
if not kept then return { "progress", 0, 0, 0, 0 } end
return { "progress", kept[2], kept[3], kept[4], kept[5] }
