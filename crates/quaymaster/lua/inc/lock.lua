-- lock: a lease on a name. The lock's key holds the holder's token and lives as long as the lease.
--
-- KEYS  @lock
--       lock   string  the holder's token; its TTL is the lease
--       fence  string  the last fence handed out
--       queue  zset    tokens of waiters, by their arrival in microseconds
--       alive  hash    until when each waiter must have asked again, in milliseconds
--
-- The key's own life is the lease: `SET lock token NX PX` of another program then means the same, and the
-- store judges both by one clock. Waiters stand in `queue` by their arrival; `alive` says until when each of
-- them must have asked again. Whoever has not is dead and is dropped, wherever it stands at the head.

-- Ends the script before its first write where a key is of another type.
local function lock_sound(lock, queue, alive)
  redis.call("STRLEN", lock)
  redis.call("ZCARD", queue)
  redis.call("HLEN", alive)
end

-- The first waiter that is alive, until when it must ask again, and how many dead ones stand in front of it; nil when
-- nobody is alive. Looks at 16,000, more than stand in a queue of ours: whoever comes then stands for a waiter that has
-- one millisecond to ask again. A deadline further away than any waiter is given was written before the store's clock
-- was set back.
local function lock_head(queue, alive, now_us)
  local now_ms, dead, step = math.floor(now_us / 1000), 0, 1
  while dead < 16000 do
    local waiters = redis.call("ZRANGE", queue, dead, dead + step - 1)
    if #waiters == 0 then return nil, 0, dead end
    for place, until_ms in ipairs(redis.call("HMGET", alive, unpack(waiters))) do
      until_ms = number_read(until_ms) or 0
      if until_ms > now_ms and until_ms <= now_ms + 3000 then
        return waiters[place], until_ms - now_ms, dead + place - 1
      end
    end
    dead, step = dead + #waiters, 1000
  end
  return redis.call("ZRANGE", queue, dead, dead)[1], 1, dead
end

-- Drops the dead waiters that `lock_head` has counted.
local function lock_drop(queue, alive, dead)
  for first = 0, dead - 1, 1000 do
    local waiters = redis.call("ZRANGE", queue, 0, math.min(dead - first, 1000) - 1)
    redis.call("HDEL", alive, unpack(waiters))
    redis.call("ZREM", queue, unpack(waiters))
  end
end

-- Whether `token` may have the lock now: "free", "ours" (it has it) or "held"; for how many milliseconds that stays so;
-- and how many dead waiters `lock_drop` may drop. A free lock is held for the waiter whose turn it is. One that never
-- ends (another program's) is to be asked for again in a second. Writes nothing.
local function lock_check(lock, queue, alive, token, now_us)
  local holder = redis.call("GET", lock)
  if holder then
    local left_ms = redis.call("PTTL", lock)
    if left_ms < 0 then left_ms = 1000 end
    lock_sound(lock, queue, alive)
    return holder == token and "ours" or "held", left_ms, 0
  end
  local head, left_ms, dead = lock_head(queue, alive, now_us)
  if head and head ~= token then return "held", left_ms, dead end
  return "free", 0, dead
end

-- The last fence handed out; 0 when there is none. Ends the script where it is no fence: nobody could tell then which
-- one is higher. `below` leaves room for the next one, so that whoever gets that can renew it.
local function lock_fence(fence, below)
  local last = number_read(redis.call("GET", fence) or "0")
  if not last or last >= below then number_refuse(fence, "the last fence is not a whole number below 8.9999e15") end
  return last
end

-- Takes the lock that was "free", or begins the lease anew that was "ours" under the fence it has; answers the fence.
-- `number` is what `lock_fence` said. Fences rise also when their key was lost: the store's time is above all of them.
-- A token that never waits leaves no queue: it gives none.
local function lock_commit(lock, fence, number, queue, alive, token, ttl_ms, fence_ttl_ms, now_us)
  if number == 0 or redis.call("GET", lock) ~= token then number = math.max(number + 1, now_us) end
  -- Where the lock is ours already, this first write cannot grow, and a store without memory lets the rest pass.
  redis.call("PEXPIRE", lock, ttl_ms)
  redis.call("SET", lock, token, "PX", ttl_ms)
  redis.call("SET", fence, string.format("%.0f", number), "PX", fence_ttl_ms)
  if queue then
    redis.call("ZREM", queue, token)
    redis.call("HDEL", alive, token)
  end
  return number
end

-- Wakes the waiter whose turn it is, if any: by the end of its token, too little of it to be used by anybody.
-- The last step of a script.
local function lock_wake(head, channel)
  if head then redis.pcall("PUBLISH", channel, string.sub(head, -8)) end
end

-- Drops the dead waiters in front; answers who is next.
local function lock_next(queue, alive, now_us)
  local head, _, dead = lock_head(queue, alive, now_us)
  lock_drop(queue, alive, dead)
  return head
end

-- Gives the lock back if it is still held by `token`; answers who is next, for `lock_wake`. The fence's key lives
-- on, so that the next fence is higher even if the store's clock is not.
local function lock_release(lock, fence, queue, alive, token, fence_ttl_ms, now_us)
  lock_sound(lock, queue, alive)
  if redis.call("GET", lock) ~= token then return "lost" end
  redis.call("DEL", lock)
  redis.call("PEXPIRE", fence, fence_ttl_ms)
  local head = lock_next(queue, alive, now_us)
  return "released", head
end

-- Puts `token` in the queue, where it stays as long as it asks again within three seconds; answers its place,
-- 0 for the head. A queue of 10,000 takes nobody in: place -1, ask again later.
local function lock_wait(queue, alive, token, now_us)
  if not redis.call("ZSCORE", queue, token) then
    if redis.call("ZCARD", queue) >= 10000 then return -1 end
    redis.call("ZADD", queue, string.format("%.0f", now_us), token)
  end
  redis.call("HSET", alive, token, string.format("%.0f", math.floor(now_us / 1000) + 3000))
  redis.call("PEXPIRE", queue, 60000)
  redis.call("PEXPIRE", alive, 60000)
  return redis.call("ZRANK", queue, token)
end
