-- upload.recount: the sum of the bytes in flight, made anew from what is held; what has ended is given back.
--
-- KEYS  1-3 flight  @flight
-- ARGV  1 most              int>0   names above which it is not worth it
--       2 lease_ms          int>0   what a name without an end gets
-- OUT   "counted"  total  pruned  off; off: by how much the sum was wrong
--       "many"     names
-- COST  O(names), at most `most`

--@include clock
--@include number
--@include upload/flight

local names, ends, sum = KEYS[1], KEYS[2], KEYS[3]
local most, lease_ms = tonumber(ARGV[1]), tonumber(ARGV[2])

flight_sound(names, ends, sum)
local now_ms = math.floor(clock_us() / 1000)
local pruned = flight_prune(names, ends, sum, now_ms, 1000)
local count = redis.call("HLEN", names)
if count > most then return { "many", count } end
local total, held = 0, redis.call("HGETALL", names)
for at = 1, #held, 2 do
  total = total + (number_read(string.match(held[at + 1], "^%d+")) or 0)
  local ends_ms = tonumber(redis.call("ZSCORE", ends, held[at]) or "") or math.huge
  -- No lease is longer than a week; behind all clocks are those that were given up.
  if ends_ms > now_ms + 604800000 and (ends_ms < 8000000000000000 or ends_ms > 9000000000000000) then
    redis.call("ZADD", ends, string.format("%.0f", now_ms + lease_ms), held[at])
  end
end
local off = math.abs(total - flight_sum(sum))
if off > 0 or not number_read(redis.call("GET", sum) or "0") then redis.call("SET", sum, string.format("%.0f", total)) end
return { "counted", total, pruned, off }
