-- run.name: remember which id was made up for a start that named none, so that its repetition finds the same run.
--
-- KEYS  1 started  string  the id
-- ARGV  1 id       text    what it would be
--       2 taken    text    an id that turned out to be another's, "" for none
--       3 keep_ms  int>0
-- OUT   "named"  id:bytes
-- COST  O(1)

--@include replay

local started = KEYS[1]
local id, taken, keep_ms = ARGV[1], ARGV[2], ARGV[3]

local held = redis.call("GET", started)
if held and not string.find(held, "^manual_%d+%-%d+%-%d+T%d+:%d+:[%d.]+%+00:00$") then
  return replay_refused(started, "")
end
if held and held ~= taken then return { "named", held } end
redis.call("SET", started, id, "PX", keep_ms)
return { "named", id }
