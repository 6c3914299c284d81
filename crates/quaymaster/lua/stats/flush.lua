-- stats.flush: add what processes counted since their last flush; the same flush counts once.
--
-- KEYS  1-18 totals       @stats
--       19 request?       string     the answer kept for a repeated request_id
--       20 over_instance  string     requests of the instances over the cap
--       21.. instances    string     requests of each
--       +.. statuses      string     responses of each
--       + over_endpoint   @endpoint
--       +.. endpoints     @endpoint
-- ARGV  1-17 flush         @stats
--       18.. of_instances  each
--           name           text
--           process        text
--           requests       int>=0
--           connections    word    empty when not told
--           peak           word
--       +.. of_statuses    each
--           code           int
--           count          int>0
--       +.. of_endpoints   each
--           name           text
--           count          int>=0  0 for what goes on from a piece before
--           errors         int>=0
--           sum_us         int>=0
--           buckets        text    `bucket:count …`
--           samples        text    `epoch_ms member …`
-- OUT   "flushed"    kept_out; endpoints that the cap kept out
--       "repeat"
--       "ahead"      now_ms; the hour has not begun
--       "malformed"  key:bytes
--       "conflict"
-- COST  O(i log I + b + s log S) of its instances, buckets and samples, which the caller bounds

--@include clock
--@include replay
--@include number
--@include stats

local kind, process, sequence, hour_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[10])
local instances, statuses, endpoints = tonumber(ARGV[15]), tonumber(ARGV[16]), tonumber(ARGV[17])
local first, status_from = 19, 18 + instances * 5
local endpoint_from = status_from + statuses * 2

if kind == "flush" then
  local last = redis.call("HGET", KEYS[12], process) or "0"
  if not number_read(last) then return { "malformed", KEYS[12] } end
  if number_read(last) >= sequence then return { "repeat" } end
end
if kind == "record" then
  local kept = replay_read(KEYS[first], "record", "^repeat #$")
  if kept and kept.err then return kept end
  if kept and kept[2] == tonumber(ARGV[11]) then return { "repeat" } end
  if kept then return { "conflict" } end
  first = first + 1
end
local now_ms = math.floor(clock_us() / 1000)
-- A few seconds of a clock that runs ahead are forgiven; more of it would make hours that have not begun.
if hour_ms > now_ms + 5000 then return { "ahead", string.format("%.0f", now_ms) } end
local status_at, over_at = first + instances, first + instances + statuses + 1
local places, kept_out, spoiled = stats_places(KEYS, first, over_at, ARGV, endpoint_from, endpoints)
if spoiled then return { "malformed", spoiled } end

if kind == "flush" then stats_mark(KEYS[12], KEYS[13], process, ARGV[3], now_ms) end
if kind == "record" then redis.call("SET", KEYS[19], "record repeat " .. ARGV[11], "PX", ARGV[4]) end
for index = 1, 3 do
  if ARGV[10 + index] ~= "0" then redis.call("INCRBY", KEYS[index], ARGV[10 + index]) end
end
-- An hour is kept for a day after its end; what comes later has no place in it any more.
local left_ms = math.min(86400000, hour_ms + 90000000 - now_ms)
if left_ms > 0 and ARGV[11] ~= "0" then
  redis.call("INCRBY", KEYS[18], ARGV[11])
  redis.call("PEXPIRE", KEYS[18], string.format("%.0f", left_ms))
end
stats_gauges(KEYS, first, ARGV, instances, now_ms)
for index = 1, statuses do
  redis.call("SADD", KEYS[15], ARGV[status_from + index * 2 - 2])
  redis.call("INCRBY", KEYS[status_at + index], ARGV[status_from + index * 2 - 1])
end
for index = 1, endpoints do
  local from = endpoint_from + index * 6 - 6
  local name = places[index] == over_at and "overflow" or ARGV[from]
  if string.find(name, " ", 1, true) then redis.call("ZADD", KEYS[14], string.format("%.0f", now_ms), name) end
  stats_endpoint(KEYS, places[index], ARGV, from, name, KEYS[16], tonumber(ARGV[8]), left_ms)
end
return { "flushed", kept_out }
