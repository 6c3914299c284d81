-- limit/token_bucket: GCRA in one string, `whole:part`.
--
-- The theoretical arrival time in microseconds is whole + part / limit, so that a rate which does not
-- divide the window is kept exactly. A cost moves it by inc + inc_part / limit; a call passes while the
-- result lies at most window_us ahead of now.
local function token_bucket_backlog(bucket, now_us, limit, window_us)
  local held = redis.call("GET", bucket)
  if not held then return 0, 0 end
  local whole, part = string.match(held, "^(%d+):(%d+)$")
  whole, part = number_read(whole), number_read(part)
  if not whole or not part then return nil end
  local ahead_us = whole - now_us
  if ahead_us < 0 then return 0, 0 end
  -- Further ahead than any call can bring it: another clock wrote it. Empty is as full as it gets.
  if ahead_us > window_us then return window_us, 0, true end
  -- The limit may have been lowered since: a part is always less than one.
  return ahead_us, math.min(part, math.max(limit - 1, 0))
end

local function token_bucket_check(bucket, now_us, _, limit, window_us, _, inc_us, inc_part)
  local ahead_us, part = token_bucket_backlog(bucket, now_us, limit, window_us)
  if not ahead_us then return "malformed", 0, 0, 0 end
  local next_us, next_part = ahead_us + inc_us, part + inc_part
  if next_part >= limit then next_us, next_part = next_us + 1, next_part - limit end
  local fits = limit > 0 and (next_us < window_us or (next_us == window_us and next_part == 0))
  return fits and "allowed" or "limited", ahead_us, part, 0
end

local function token_bucket_write(bucket, now_us, ttl_ms, ahead_us, part)
  redis.call("SET", bucket, string.format("%.0f:%.0f", now_us + ahead_us, part), "PX", ttl_ms)
  return ahead_us, part, 0
end

local function token_bucket_commit(bucket, now_us, _, limit, _, ttl_ms, inc_us, inc_part, ahead_us, part)
  local next_us, next_part = ahead_us + inc_us, part + inc_part
  if next_part >= limit then next_us, next_part = next_us + 1, next_part - limit end
  return token_bucket_write(bucket, now_us, ttl_ms, next_us, next_part)
end

-- Puts tokens back, never more than were taken.
local function token_bucket_refund(bucket, now_us, limit, window_us, ttl_ms, inc_us, inc_part)
  local ahead_us, part = token_bucket_backlog(bucket, now_us, limit, window_us)
  if not ahead_us then return nil end
  local left_us, left_part = ahead_us - inc_us, part - inc_part
  if left_part < 0 then left_us, left_part = left_us - 1, left_part + limit end
  if left_us < 0 then left_us, left_part = 0, 0 end
  if ahead_us > 0 or part > 0 then token_bucket_write(bucket, now_us, ttl_ms, left_us, left_part) end
  return left_us, left_part
end

-- An empty bucket is not written, so one from the future is brought into the present here.
local function token_bucket_heal(bucket, now_us, limit, window_us, ttl_ms)
  local ahead_us, part, ahead = token_bucket_backlog(bucket, now_us, limit, window_us)
  if ahead then token_bucket_write(bucket, now_us, ttl_ms, ahead_us, part) end
end
