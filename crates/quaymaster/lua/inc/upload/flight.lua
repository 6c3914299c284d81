-- upload/flight: bytes on their way in or not yet durable, over all uploads. A name is one attempt to send a chunk;
-- `names` has its bytes, with a `c` behind them once the chunk is taken, `ends` when it is given up, `sum` the bytes of
-- all of them, changed in the same step. One that was given up before a chunk took it stays with an `x` and no bytes,
-- its end behind all others, until somebody has removed what was staged under it.
--
-- KEYS  @flight
--       names  hash    bytes by name
--       ends   zset    when each is given up
--       sum    string  of all bytes

-- Where the ends of those begin that were given up: no clock comes so far.
local function flight_beyond(ms)
  return string.format("%.0f", 8000000000000000 + ms)
end

local function flight_sum(sum)
  return number_read(redis.call("GET", sum) or "0") or 0
end

-- Reads what may be written. Answers what the script is to return if the sum is none; a recount puts it right.
local function flight_sound(names, ends, sum)
  redis.call("HLEN", names)
  redis.call("ZCARD", ends)
  local held = redis.call("GET", sum)
  return held and not number_read(held) and number_malformed(sum)
end

-- What a name holds; nothing for one that holds nothing.
local function flight_bytes(names, name)
  return number_read(string.match(redis.call("HGET", names, name) or "", "^%d+"))
end

-- Sets what a name holds; answers the new sum.
local function flight_put(names, ends, sum, name, bytes, mark, end_ms)
  local held = flight_bytes(names, name) or 0
  local total = math.max(0, flight_sum(sum) + bytes - held)
  redis.call("HSET", names, name, string.format("%.0f%s", bytes, mark))
  redis.call("ZADD", ends, string.format("%.0f", end_ms), name)
  redis.call("SET", sum, string.format("%.0f", total))
  return total
end

-- Gives back what a name holds; answers 1 when it held something.
local function flight_drop(names, ends, sum, name)
  local held = flight_bytes(names, name)
  redis.call("ZREM", ends, name)
  if not held then return 0 end
  redis.call("HDEL", names, name)
  -- What nobody holds weighs nothing, whatever the sum says.
  local total = redis.call("HLEN", names) == 0 and 0 or math.max(0, flight_sum(sum) - held)
  redis.call("SET", sum, string.format("%.0f", total))
  return 1
end

-- Gives back what has ended, at most `most`: the bytes of a node that died come back by themselves.
local function flight_prune(names, ends, sum, now_ms, most)
  local ended = redis.call("ZRANGEBYSCORE", ends, "-inf", string.format("%.0f", now_ms), "LIMIT", 0, most)
  for _, name in ipairs(ended) do
    local taken = string.find(redis.call("HGET", names, name) or " c", " c", 1, true)
    flight_drop(names, ends, sum, name)
    -- Bounded: what was staged under more of them ends by itself.
    if not taken and redis.call("HLEN", names) < 100000 then
      redis.call("HSET", names, name, "0 x")
      redis.call("ZADD", ends, flight_beyond(0), name)
    end
  end
  return #ended
end

-- Whether a name was given up, and what was staged under it is being removed.
local function flight_left(names, name)
  return redis.call("HGET", names, name) == "0 x"
end
