-- stats.report: the totals, what is true now, and the names of what is counted one by one.
--
-- KEYS  1 requests_total     string
--       2 requests_accepted  string
--       3 errors_total       string
--       4 connections_max    string  the most connections since a process was alive without a break
--       5 speed              string
--       6 max_speed          string
--       7 beats              zset
--       8 connections        hash
--       9 gauge              hash
--       10 statuses          set
--       11.. hourly          string  the hours asked for
-- ARGV  1 heartbeat_ms  int>0
-- OUT   "report"     now_ms  totals:any..; total accepted errors current max speed max_speed alive started_ms, then the
--                    tables of statuses and hours
--       "malformed"  key:bytes
-- COST  O(n) of statuses, hours and processes that are gone and not yet forgotten

--@include clock
--@include number

local beats, connections, gauge, statuses = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local heartbeat_ms = tonumber(ARGV[1])

local now_ms = math.floor(clock_us() / 1000)
local since = string.format("%.0f", now_ms - heartbeat_ms)
local told = redis.call("HMGET", gauge, "connections", "started_ms")
local current, started_ms = number_read(told[1] or "0"), told[2] or "0"
if not current or not number_read(started_ms) then return { "malformed", gauge } end
local gone = redis.call("ZRANGEBYSCORE", beats, "-inf", since, "LIMIT", 0, 5000)
if #gone > 0 then
  for _, held in ipairs(redis.call("HMGET", connections, unpack(gone))) do current = current - (number_read(held or "0") or 0) end
end
-- Nobody has flushed in time to come.
local alive = redis.call("ZCOUNT", beats, "(" .. since, string.format("%.0f", now_ms + 60000))
current = alive == 0 and 0 or math.max(current, 0)
local held = redis.call("MGET", KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6])
local hours = {}
for index = 11, #KEYS do hours[#hours + 1] = redis.call("GET", KEYS[index]) or "0" end
return {
  "report", string.format("%.0f", now_ms), held[1] or "0", held[2] or "0", held[3] or "0", string.format("%.0f", current),
  held[4] or "0", held[5] or "0", held[6] or "0", alive, started_ms,
  redis.call("SMEMBERS", statuses), hours,
}
