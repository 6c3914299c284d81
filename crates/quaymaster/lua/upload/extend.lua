-- upload.extend: leases of one upload's chunks begin anew, those that are held.
--
-- KEYS  1-8 own     @upload
--       9.. chunks  string   the bytes of each chunk named
-- ARGV  1 ttl_ms        int>0
--       2 lease_ms      int>0
--       3 chunk_ttl_ms  int>0
--       4.. leases      each    at most 500
--           number      int>=0
--           token       text
-- OUT   "extended"  held..; 1 for each that is held, 0 for one that is lost
-- COST  O(leases log n)

--@include clock
--@include number
--@include upload

local spoiled = upload_sound(KEYS)
if spoiled then return spoiled end
local ends = string.format("%.0f", math.floor(clock_us() / 1000) + ARGV[2])
local reply = { "extended" }
-- A store without memory refuses what could grow, unless something that cannot was written before.
redis.call("HDEL", KEYS[6], "")
for at = 4, #ARGV, 2 do
  local held = upload_ours(KEYS, ARGV[at], ARGV[at + 1])
  if held then
    redis.call("ZADD", KEYS[5], "XX", ends, ARGV[at])
    redis.call("PEXPIRE", KEYS[9 + (at - 4) / 2], ARGV[3])
  end
  reply[#reply + 1] = held and 1 or 0
end
for at = 1, 8 do redis.call("PEXPIRE", KEYS[at], ARGV[1]) end
return reply
