-- run.sweep: write into the documented hash that a run gives no sign of life.
--
-- KEYS  1-9 run       @run
--       10-12 index?  @run_index
-- ARGV  1-5 frame   @run
--       6 stale_ms  int>0
--       7 id        text
--       8 index_at  int>=0  which key `runs` is, 0 for none
--       9 list_field  text  what the state calls the list of what is processed
-- OUT   "stale"      active_ms
--       "fresh"      active_ms
--       "over"       active_ms
--       "gone"       active_ms
--       "malformed"  key:bytes
-- COST  O(log n) of runs, and of the run's list when it is rendered

--@include clock
--@include number
--@include run

local stale_ms, id, at, list_field = tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8]), ARGV[9]

local now_us = clock_us()
local held, spoiled = run_meta(KEYS)
if spoiled then return { "malformed", spoiled } end
redis.call("LLEN", KEYS[4])
local active_us = tonumber(held[1] or "")
local word, status = "stale", redis.call("HGET", KEYS[1], "status")
if not active_us or not status then
  word = "gone"
elseif run_over(KEYS) then
  word = "over"
elseif now_us - active_us <= stale_ms * 1000 then
  word = "fresh"
elseif status ~= "stale" then
  redis.call("HSET", KEYS[2], "was", status)
  redis.call("HSET", KEYS[1], "status", "stale")
  if redis.call("HGET", KEYS[2], "bytes") ~= redis.call("HGET", KEYS[2], "rendered") then run_render(KEYS, list_field, now_us) end
end
local ms = string.format("%.0f", math.floor((active_us or 0) / 1000))
if at > 0 then
  -- Another program, or a clock that was wrong, may have put it in front of all others.
  local seen = tonumber(redis.call("ZSCORE", KEYS[at], id) or "")
  if seen and seen > math.floor(now_us / 1000) + 60000 then redis.call("ZADD", KEYS[at], ms, id) end
  if word == "gone" and redis.call("EXISTS", KEYS[1]) == 0 then
    redis.call("ZREM", KEYS[at], id)
    redis.call("ZREM", KEYS[at + 2], id)
  end
  if word == "fresh" then
    redis.call("ZADD", KEYS[at + 1], ms, id)
  else
    redis.call("ZREM", KEYS[at + 1], id)
  end
end
return { word, ms }
