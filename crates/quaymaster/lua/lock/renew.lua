-- lock.renew: begin the lease anew if it is still ours; or make the lease real that a policy gave out meanwhile.
--
-- KEYS  1-4 lock  @lock
-- ARGV  1 token         text
--       2 ttl_ms        int>0
--       3 fence_ttl_ms  int>0
--       4 away_fence    int>=0  the fence a policy gave out with the lease; 0 for a lease of the store's
-- OUT   "ours"  fence  ttl_ms  now_us
--       "lost"
-- COST  O(1); with a fence of a policy as lock.acquire

--@include clock
--@include number
--@include lock

local lock, fence, queue, alive = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, ttl_ms, fence_ttl_ms = ARGV[1], ARGV[2], ARGV[3]
local away_fence = tonumber(ARGV[4])

-- Ours under the fence that was given out, if nobody has had the lock since: whoever had got a higher one, or the same
-- when this lease was made real and has ended. Where no fence is left, that is known for as long as one is kept.
if away_fence > 0 then
  local now_us = clock_us()
  local last = lock_fence(fence, 9e15)
  local word, _, dead = lock_check(lock, queue, alive, token, now_us)
  local past = last == 0 and now_us - away_fence > tonumber(fence_ttl_ms) * 1000
  if word == "held" or past or last > away_fence or (last == away_fence and word ~= "ours") then return { "lost" } end
  lock_drop(queue, alive, dead)
  redis.call("SET", lock, token, "PX", ttl_ms)
  redis.call("SET", fence, string.format("%.0f", away_fence), "PX", fence_ttl_ms)
  redis.call("ZREM", queue, token)
  redis.call("HDEL", alive, token)
  return { "ours", string.format("%.0f", away_fence), tonumber(ttl_ms), string.format("%.0f", now_us) }
end
if redis.call("GET", lock) ~= token then return { "lost" } end
local last, now_us = lock_fence(fence, 9e15), clock_us()
lock_sound(lock, queue, alive)
local number = lock_commit(lock, fence, last, queue, alive, token, ttl_ms, fence_ttl_ms, now_us)
return { "ours", string.format("%.0f", number), tonumber(ttl_ms), string.format("%.0f", now_us) }
