-- upload.renew: reservations begin anew, those that are held.
--
-- KEYS  1 in_flight         hash  bytes by name
--       2 in_flight_until   zset  when each is given up
-- ARGV  1 lease_ms  int>0
--       2 mark      text   ` c` for chunks that are taken, else empty
--       3.. names   text   at most 1000
-- OUT   "renewed"  held..; 1 for each that is held, 0 for one that was given up
-- COST  O(names log n)

--@include clock

local names, ends = KEYS[1], KEYS[2]
local until_ms = string.format("%.0f", math.floor(clock_us() / 1000) + ARGV[1])
local reply = { "renewed" }
redis.call("HLEN", names)
redis.call("ZREM", ends, "")
for at = 3, #ARGV do
  local bytes = redis.call("HGET", names, ARGV[at])
  local held = bytes and bytes ~= "0 x" and 1 or 0
  if held == 1 then
    redis.call("ZADD", ends, until_ms, ARGV[at])
    -- Whoever took the chunk may have died before it could say so here; then nobody would ever give this back.
    if not string.find(bytes, " c", 1, true) then redis.call("HSET", names, ARGV[at], bytes .. ARGV[2]) end
  end
  reply[#reply + 1] = held
end
return reply
