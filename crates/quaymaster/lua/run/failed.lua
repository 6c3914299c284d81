-- run.failed: note that an item failed; its attempts are counted until it is processed.
--
-- KEYS  1-9 run        @run
--       10 request?    string      the answer kept for a repeated request_id
--       11 hour_list?  list        ids that failed in the hour
--       12 known?      hash        id: how often it is in that list because of us, or was taken over
--       13-15 index?   @run_index
--       16 counter?    string      the limit's
-- ARGV  1-5 frame       @run
--       6 item          text
--       7 error         text
--       8 cut           int>=0  1: it was longer
--       9 max_failures  int>0
--       10 hour_at      int>=0  which key the hour's list is, with `known` behind it, 0 for none
--       11 hour_ttl_ms  int>0
--       12 hour_max     int>0
--       13-22 pulse?    @pulse
-- OUT   "failed"     attempts  processed_count  failed_count  beat  again; again: 1 for a repeated request_id
--       "processed"  0  processed_count  failed_count  0  0; it is done; nothing was changed
--       "missing"
--       "malformed"  key:bytes
--       "foreign"
--       "pulse"
--       "full"
--       "stale"      now_ms
--       "conflict"
-- COST  O(log n) of failures and runs, and of the run's list when it is rendered

--@include clock
--@include replay
--@include number
--@include run

local request = KEYS[tonumber(ARGV[4])]
local item, hour = ARGV[6], KEYS[tonumber(ARGV[10])]
local known = hour and KEYS[ARGV[10] + 1]

if request then
  local kept = replay_read(request, "failed", "^failed # # # # #$")
  if kept then
    kept[6] = 1
    return kept
  end
end
local now_us = clock_us()
local word, x = run_check(KEYS, ARGV, now_us)
if word ~= "go" then return { word, x } end
if hour then
  redis.call("LLEN", hour)
  if not number_read(redis.call("HGET", known, item) or "0") then return { "malformed", known } end
end
local listed = redis.call("HLEN", KEYS[5])
if redis.call("SISMEMBER", KEYS[3], item) == 1 then
  return { "processed", 0, redis.call("SCARD", KEYS[3]), listed, 0, 0 }
end
local held = redis.call("HGET", KEYS[5], item)
if not held and listed >= tonumber(ARGV[9]) then return { "full" } end
local attempts = held and number_read(string.match(held, "^(%d+) %d+ [01] ")) or 0
if held and attempts == 0 then return { "malformed", KEYS[5] } end
attempts = attempts + 1
local ms = string.format("%.0f", math.floor(now_us / 1000))
local cut, why = ARGV[8], ARGV[7]
-- A failure that is told without a reason leaves the one that is known.
if why == "" and held then
  local was_cut, was = string.match(held, "^%d+ %d+ (%d) (.*)$")
  cut, why = was_cut or cut, was or why
end
if hour then
  redis.call("LPUSH", hour, item)
  redis.call("LTRIM", hour, 0, ARGV[12] - 1)
  redis.call("PEXPIRE", hour, ARGV[11])
  redis.call("HINCRBY", known, item, 1)
  redis.call("PEXPIRE", known, ARGV[11])
end
redis.call("HSET", KEYS[5], item, string.format("%.0f %.0f %s ", attempts, now_us, cut) .. why)
redis.call("ZADD", KEYS[6], ms, item)
redis.call("ZADD", KEYS[7], ms, item)
local beat = run_active(KEYS, ARGV, now_us)
local answer = { "failed", attempts, redis.call("SCARD", KEYS[3]), redis.call("HLEN", KEYS[5]), beat, 0 }
if request then replay_keep_all(request, "failed", ARGV[2], answer) end
return answer
