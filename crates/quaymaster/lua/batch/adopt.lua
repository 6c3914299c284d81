-- batch.adopt: take over an open batch that another program began.
--
-- KEYS  1 open           zset    batch ids by the millisecond they close
--       2 items          string  a JSON list
--       3 started_at     string  seconds
--       4 size           string
--       5 by             string  what it is grouped by
-- ARGV  1 id         text
--       2 length     int>0   of the list as it was read
--       3 list       json    the same list without spaces around it
--       4 count      int>=0  its items
--       5 window_ms  int>0
--       6 idle_ms    int>0
--       7 ttl_ms     int>0
--       8 of         text    whose it is, if it does not say
-- OUT   "adopted"
--       "changed"
--       "malformed"  key:bytes
-- COST  O(n) of the list

--@include clock
--@include number

local open, items, started_at, size, by = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, length, list, count = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local window_ms, idle_ms, ttl_ms = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]

if redis.call("STRLEN", items) ~= length then return { "changed" } end
local started, was = redis.call("GET", started_at), redis.call("GET", size)
if started and not number_read(string.match(started, "^(%d+)%.?%d*$")) then return { "malformed", started_at } end
if was and not number_read(was) then return { "malformed", size } end
redis.call("GET", by)
redis.call("ZSCORE", open, id)
local now_us = clock_us()
local now_ms = math.floor(now_us / 1000)
redis.call("SET", items, list, "PX", ttl_ms)
redis.call("SET", size, count, "PX", ttl_ms)
redis.call("SET", by, ARGV[8], "NX", "PX", ttl_ms)
redis.call("PEXPIRE", by, ttl_ms)
redis.call("PEXPIRE", started_at, ttl_ms)
local started_s = tonumber(started or "")
if not started_s then
  started_s = now_us / 1000000
  redis.call("SET", started_at, string.format("%.0f.%06.0f", math.floor(started_s), now_us % 1000000), "PX", ttl_ms)
end
local closes_ms = math.min(math.floor(started_s * 1000) + window_ms, now_ms + idle_ms)
redis.call("ZADD", open, "NX", string.format("%.0f", closes_ms), id)
return { "adopted" }
