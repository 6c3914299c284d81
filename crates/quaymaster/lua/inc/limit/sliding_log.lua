-- limit/sliding_log: a zset with one member per call, scored by its millisecond; exact.
--
-- A call at t counts for [t, t + window_ms). Members are unique because the caller's nonce is.
local function sliding_log_live(log, now_ms, window_ms)
  return redis.call("ZCOUNT", log, "(" .. string.format("%.0f", now_ms - window_ms), "+inf")
end

-- Milliseconds until the last of the live calls has left; 0 when there are none, nil when it never does.
local function sliding_log_reset(log, now_ms, window_ms)
  local newest = tonumber(redis.call("ZRANGE", log, -1, -1, "WITHSCORES")[2] or "0")
  return newest < 9e15 and math.max(math.ceil(newest) + window_ms - now_ms, 0) or nil
end

local function sliding_log_check(log, now_us, cost, limit, window_ms)
  local now_ms = math.floor(now_us / 1000)
  local used = sliding_log_live(log, now_ms, window_ms)
  local reset_ms = sliding_log_reset(log, now_ms, window_ms)
  if not reset_ms then return "malformed", 0, 0, 0 end
  if used + cost <= limit then return "allowed", used, reset_ms, 0 end
  local retry_ms = 0
  if cost <= limit then
    -- Room comes when this many of the oldest live calls have left.
    local leaving = used + cost - limit
    local after = "(" .. string.format("%.0f", now_ms - window_ms)
    local pair = redis.call("ZRANGEBYSCORE", log, after, "+inf", "WITHSCORES", "LIMIT", leaving - 1, 1)
    retry_ms = math.max(math.ceil(tonumber(pair[2])) + window_ms - now_ms, 1)
  end
  return "limited", used, reset_ms, retry_ms
end

-- A clock that was wrong has left calls in the future. They count from now on, at most 1,000 at a time.
local function sliding_log_heal(log, now_ms, window_ms, ttl_ms, reset_ms)
  if reset_ms <= window_ms then return end
  local after = "(" .. string.format("%.0f", now_ms)
  for _, call in ipairs(redis.call("ZRANGEBYSCORE", log, after, "+inf", "LIMIT", 0, 1000)) do
    redis.call("ZADD", log, now_ms, call)
  end
  redis.call("PEXPIRE", log, ttl_ms)
end

local function sliding_log_commit(log, now_us, cost, _, window_ms, ttl_ms, nonce, _, used, reset_ms)
  local now_ms = math.floor(now_us / 1000)
  -- First what grows: a store without memory refuses it then.
  for call = 1, cost do
    redis.call("ZADD", log, now_ms, string.format("%.0f-%s-%d", now_ms, nonce, call))
  end
  redis.call("ZREMRANGEBYSCORE", log, "-inf", string.format("%.0f", now_ms - window_ms))
  sliding_log_heal(log, now_ms, window_ms, ttl_ms, reset_ms)
  redis.call("PEXPIRE", log, ttl_ms)
  return used + cost, math.max(reset_ms, window_ms), 0
end
