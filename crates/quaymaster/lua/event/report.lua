-- event.report: leave values that the next statuses tell, each until its time is over.
--
-- KEYS  1 reported  hash    name to "<until_ms> <json>"
-- ARGV  1 ttl_ms    int>0  how long the values count
--       2 keep_ms   int>0  how long the hash outlives the last report
--       3 most      int>0  how many names there may be
--       4.. values  each
--           name    text
--           json    json
-- OUT   "reported"  names
--       "full"      names
-- COST  O(n) of the names, at most `most`

--@include clock
--@include number

local reported = KEYS[1]
local ttl_ms, keep_ms, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local now_ms = math.floor(clock_us() / 1000)
local held, live, names, stale = redis.call("HGETALL", reported), {}, 0, {}
for index = 1, #held, 2 do
  local until_ms = number_read(string.match(held[index + 1], "^(%d+) ")) or 0
  -- A value counts for a day at most: one that counts longer is not ours.
  if until_ms > now_ms and until_ms <= now_ms + 86400000 then
    live[held[index]] = true
    names = names + 1
  else
    stale[#stale + 1] = held[index]
  end
end
local fresh = {}
for index = 4, #ARGV, 2 do
  if not live[ARGV[index]] then names = names + 1 end
  live[ARGV[index]] = true
  fresh[#fresh + 1] = ARGV[index]
  fresh[#fresh + 1] = string.format("%.0f ", now_ms + ttl_ms) .. ARGV[index + 1]
end
if names > most then return { "full", most } end
for first = 1, #stale, 1000 do
  redis.call("HDEL", reported, unpack(stale, first, math.min(first + 999, #stale)))
end
redis.call("HSET", reported, unpack(fresh))
redis.call("PEXPIRE", reported, string.format("%.0f", math.max(keep_ms, ttl_ms)))
return { "reported", names }
