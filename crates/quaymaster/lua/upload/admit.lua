-- upload.admit: reserve bytes in flight, if they fit; again under the same name, so many in all.
--
-- KEYS  1-3 flight  @flight
-- ARGV  1 name              text
--       2 bytes             int>=0
--       3 lease_ms          int>0
--       4 most              int>0   bytes in flight over all names
-- OUT   "admitted"  total
--       "busy"      total  next_ms; until one is given up at the latest, -1 when none is held
--       "lapsed"    total; the name was given up; only another one helps
-- COST  O(log n), and at most 100 pruned

--@include clock
--@include number
--@include upload/flight

local names, ends, sum = KEYS[1], KEYS[2], KEYS[3]
local name, bytes, lease_ms, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local spoiled = flight_sound(names, ends, sum)
if spoiled then return spoiled end
local now_ms = math.floor(clock_us() / 1000)
flight_prune(names, ends, sum, now_ms, 100)
local held = flight_bytes(names, name) or 0
local total = flight_sum(sum)
if flight_left(names, name) then return { "lapsed", total } end
if total - held + bytes > most then
  local first = redis.call("ZRANGEBYSCORE", ends, "-inf", "(" .. flight_beyond(0), "WITHSCORES", "LIMIT", 0, 1)[2]
  return { "busy", total, first and math.max(0, math.ceil(tonumber(first) - now_ms)) or -1 }
end
return { "admitted", flight_put(names, ends, sum, name, bytes, "", now_ms + lease_ms) }
