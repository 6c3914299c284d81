-- run.retry: hand failed items out for another try, each to one caller until its lease ends.
--
-- KEYS  1-9 run       @run
--       10 request?   string      the answer kept for a repeated request_id
--       11-13 index?  @run_index
--       14 counter?   string      the limit's
-- ARGV  1-5 frame    @run
--       6 count      int>0
--       7 lease_ms   int>0
--       8-17 pulse?  @pulse
-- OUT   "retry"      beat  items(item:bytes record:bytes)..
--       "missing"
--       "malformed"  key:bytes
--       "foreign"
--       "pulse"
--       "stale"      now_ms
--       "conflict"
-- COST  O(log n + count) of failures; with a pulse what `run.start` costs

--@include clock
--@include number
--@include replay
--@include run

local request = KEYS[tonumber(ARGV[4])]
local count, lease_ms = ARGV[6], ARGV[7]

local answer = { "retry", 0 }
local kept = request and redis.call("GET", request)
if kept then
  -- Items may be any text, so each stands behind its length.
  local at = 7
  if string.sub(kept, 1, 6) ~= "retry " or #kept == 6 then return replay_refused(request, kept) end
  while at <= #kept do
    local length, from = string.match(kept, "^(%d+):()", at)
    if not length or from + length - 1 > #kept then return replay_refused(request, "") end
    local item = string.sub(kept, from, from + length - 1)
    local record = redis.call("HGET", KEYS[5], item)
    if record then answer[#answer + 1], answer[#answer + 2] = item, record end
    at = from + length
  end
  return answer
end
local now_us = clock_us()
local word, x = run_check(KEYS, ARGV, now_us)
if word ~= "go" then return { word, x } end
local now_ms = math.floor(now_us / 1000)
local due, until_ms = string.format("%.0f", now_ms), string.format("%.0f", now_ms + lease_ms)
local handed = {}
for _, item in ipairs(redis.call("ZRANGEBYSCORE", KEYS[7], "-inf", due, "LIMIT", 0, count)) do
  local record = redis.call("HGET", KEYS[5], item)
  if record then
    redis.call("ZADD", KEYS[7], until_ms, item)
    answer[#answer + 1], answer[#answer + 2] = item, record
    handed[#handed + 1] = #item .. ":" .. item
  else
    redis.call("ZREM", KEYS[7], item)
  end
end
-- Asking in vain is no sign of life.
if #handed == 0 then return answer end
answer[2] = run_active(KEYS, ARGV, now_us)
if request then redis.call("SET", request, "retry " .. table.concat(handed), "PX", ARGV[2]) end
return answer
