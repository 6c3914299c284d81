-- cache: an entry, and the lease of whoever loads it (`token deadline_ms`).
--
-- Whoever puts or deletes an entry ends a load in progress: what the loader read may be older.
local function cache_settle(load)
  return redis.call("DEL", load) == 1
end

-- Wakes those who wait for the value: the last step of a script.
local function cache_wake(waited, channel)
  if waited then redis.pcall("PUBLISH", channel, "1") end
end

local function cache_write_string(entry, value, ttl_ms)
  if ttl_ms == "0" then
    redis.call("SET", entry, value)
  else
    redis.call("SET", entry, value, "PX", ttl_ms)
  end
end

-- `words`: fields and values from place `first` on; the whole entry is replaced.
local function cache_write_hash(entry, ttl_ms, words, first)
  -- A store without memory takes no entry that was not there.
  if redis.call("EXISTS", entry) == 1 then redis.call("DEL", entry) end
  redis.call("HSET", entry, unpack(words, first))
  if ttl_ms ~= "0" then redis.call("PEXPIRE", entry, ttl_ms) end
end

local function cache_holds(load, token)
  local held = redis.call("GET", load)
  return held and string.match(held, "^(%S+) ") == token
end

local function cache_lease(load, token, lease_ms, now_ms)
  local until_ms = string.format("%.0f", now_ms + lease_ms)
  -- The deadline decides; the key outlives it so that a load that is only late can still be kept.
  redis.call("SET", load, token .. " " .. until_ms, "PX", string.format("%.0f", lease_ms + 1000))
end

-- Takes the lease, or says how long its holder has left. One that ends later than any lease does (a minute) is nobody's.
local function cache_claim(load, token, lease_ms, now_ms)
  local held = redis.call("GET", load)
  local holder, until_ms = string.match(held or "", "^(%S+) (%d+)$")
  until_ms = number_read(until_ms) or 0
  if holder and holder ~= token and until_ms > now_ms and until_ms <= now_ms + 60000 then
    return "wait", until_ms - now_ms
  end
  cache_lease(load, token, lease_ms, now_ms)
  return "load", lease_ms
end

-- Whether a value begins, and is long enough, as a sealed one.
local function cache_sealed(value)
  return value and #value >= 33 and string.byte(value) == 1
end

-- Whether there are fields, and all are sealed; `fields` is HGETALL's reply.
local function cache_sealed_all(fields)
  for n = 2, #fields, 2 do
    if not cache_sealed(fields[n]) then return false end
  end
  return #fields > 0
end
