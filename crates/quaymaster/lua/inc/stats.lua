-- stats: counters of requests that many processes add to, a flush at a time.
--
-- One flush is told by these keys and words, and by those of each instance, status and endpoint, which `stats.flush` names:
--
-- KEYS  @stats
--       requests_total       string
--       requests_accepted    string
--       errors_total         string
--       connections_current  string
--       connections_max      string
--       speed                string
--       max_speed            string
--       instances            zset
--       beats                zset
--       connections          hash
--       gauge                hash
--       flushes              hash
--       flushed              zset
--       endpoints            zset
--       statuses             set
--       micros               hash
--       seconds              hash
--       requests_hourly      string
-- KEYS  @endpoint
--       requests        string
--       errors          string
--       response_times  zset
--       avg_response    string
--       response_count  string
--       sketch          hash
--       sketch_hour     hash
-- ARGV  @stats
--       kind           text    flush: of a process, record: with a request_id, once: with neither
--       process        text
--       sequence       int>=0
--       keep_ms        int>0
--       heartbeat_ms   int>0
--       max_endpoints  int>0
--       max_instances  int>0
--       samples        int>=0
--       flush_s        int>0
--       hour_ms        int>=0
--       total          int>=0
--       accepted       int>=0
--       errors         int>=0
--       seconds        text    `epoch_s:count …`
--       of_instances   int>=0  how many of them follow
--       of_statuses    int>=0
--       of_endpoints   int>=0
--
-- A process is alive while it flushes: `beats` has the moment of its last flush, `connections` what it had open then,
-- and `gauge` the sum of those. Whatever changes one of the three changes the others in the same script.

-- Whether a count can be added to: an integer as the store writes it, and far from where it would overflow.
local function stats_sound(text)
  return #text <= 18 and (text == "0" or string.find(text, "^%-?[1-9]%d*$"))
end

-- The same of fields of a hash, where they are there.
local function stats_fields(key, fields)
  for from = 1, #fields, 500 do
    local some = redis.call("HMGET", key, unpack(fields, from, math.min(from + 499, #fields)))
    for _, held in ipairs(some) do
      if held and not stats_sound(held) then return false end
    end
  end
  return true
end

-- The first counter that is no integer, or of another type; nil when all can be added to. Writes nothing.
local function stats_spoiled(counters)
  local held = redis.call("MGET", unpack(counters))
  for index = 1, #counters do
    local value = held[index]
    if value then
      if not stats_sound(value) then return counters[index] end
    elseif redis.call("TYPE", counters[index]).ok ~= "none" then
      return counters[index]
    end
  end
  return nil
end

-- Takes the connections of processes that are silent since `since` out of the sum; answers it and who is left. Silent
-- is also one whose last flush is yet to come: another program or a clock that was wrong wrote that.
local function stats_alive(beats, connections, gauge, since_ms, now_ms)
  local total = number_read(redis.call("HGET", gauge, "connections") or "0") or 0
  local since, ahead = string.format("%.0f", since_ms), string.format("(%.0f", now_ms + 60000)
  for _ = 1, 40 do
    local gone = redis.call("ZRANGEBYSCORE", beats, "-inf", since, "LIMIT", 0, 500)
    if #gone == 0 then gone = redis.call("ZRANGEBYSCORE", beats, ahead, "+inf", "LIMIT", 0, 500) end
    if #gone == 0 then break end
    for _, held in ipairs(redis.call("HMGET", connections, unpack(gone))) do total = total - (number_read(held or "0") or 0) end
    redis.call("HDEL", connections, unpack(gone))
    redis.call("ZREM", beats, unpack(gone))
  end
  local left = redis.call("ZCARD", beats)
  if left == 0 then total = 0 end
  return math.max(total, 0), left
end

-- Counts requests by second, for two minutes; answers the most that one of these seconds has now.
local function stats_seconds(seconds, gauge, list, now_s)
  local oldest_s = now_s - 120
  local swept_s = number_read(redis.call("HGET", gauge, "swept_s") or "")
  if swept_s and swept_s > now_s + 2 then swept_s = nil end
  if not swept_s or oldest_s - swept_s > 240 then
    redis.call("DEL", seconds)
  elseif oldest_s > swept_s then
    local old = {}
    for second = swept_s + 1, oldest_s do old[#old + 1] = string.format("%.0f", second) end
    redis.call("HDEL", seconds, unpack(old))
  end
  redis.call("HSET", gauge, "swept_s", string.format("%.0f", math.max(oldest_s, swept_s or oldest_s)))
  local most = 0
  for second, count in string.gmatch(list, "(%d+):(%d+)") do
    local at_s = tonumber(second)
    if at_s > oldest_s and at_s <= now_s + 2 then
      most = math.max(most, redis.call("HINCRBY", seconds, second, count))
    end
  end
  if most > 0 then redis.call("PEXPIRE", seconds, 150000) end
  return most
end

-- Adds one endpoint's share: `keys[at]` is the first of its seven keys, `args[from]` the first of its six words.
local function stats_endpoint(keys, at, args, from, name, micros, keep, left_ms)
  local count, errors, sum_us = args[from + 1], args[from + 2], args[from + 3]
  if count ~= "0" then
    redis.call("INCRBY", keys[at], count)
    redis.call("INCRBY", keys[at + 4], count)
    redis.call("HINCRBY", micros, name, sum_us)
    -- As text: a number of Lua's would round sums beyond 2^53.
    local sum = string.format("%4s", redis.call("HGET", micros, name))
    local whole, part = string.gsub(string.sub(sum, 1, -4), " ", ""), string.gsub(string.sub(sum, -3), " ", "0")
    part = string.gsub(part, "0+$", "")
    redis.call("SET", keys[at + 3], (whole == "" and "0" or whole) .. (part == "" and "" or "." .. part))
  end
  if errors ~= "0" then redis.call("INCRBY", keys[at + 1], errors) end
  for bucket, of_it in string.gmatch(args[from + 4], "(%d+):(%d+)") do
    redis.call("HINCRBY", keys[at + 5], bucket, of_it)
    if left_ms > 0 then redis.call("HINCRBY", keys[at + 6], bucket, of_it) end
  end
  if left_ms > 0 then
    if count ~= "0" then redis.call("HINCRBY", keys[at + 6], "us", sum_us) end
    if errors ~= "0" then redis.call("HINCRBY", keys[at + 6], "errors", errors) end
    redis.call("PEXPIRE", keys[at + 6], string.format("%.0f", left_ms))
  end
  local some = {}
  for word in string.gmatch(args[from + 5], "%S+") do
    some[#some + 1] = word
    if #some == 200 then
      redis.call("ZADD", keys[at + 2], unpack(some))
      some = {}
    end
  end
  if #some > 0 then redis.call("ZADD", keys[at + 2], unpack(some)) end
  if args[from + 5] ~= "" then redis.call("ZREMRANGEBYRANK", keys[at + 2], 0, -keep - 1) end
end

-- Marks what is delivered, so that the same flush or request counts once, and forgets what is a day old.
local function stats_mark(flushes, flushed, process, sequence, now_ms)
  redis.call("HSET", flushes, process, sequence)
  redis.call("ZADD", flushed, string.format("%.0f", now_ms), process)
  redis.call("PEXPIRE", flushes, 86400000)
  redis.call("PEXPIRE", flushed, 86400000)
  local old = redis.call("ZRANGEBYSCORE", flushed, "-inf", string.format("%.0f", now_ms - 86400000), "LIMIT", 0, 16)
  if #old == 0 and redis.call("ZCARD", flushed) > 10000 then old = redis.call("ZRANGE", flushed, 0, 15) end
  if #old > 0 then
    redis.call("HDEL", flushes, unpack(old))
    redis.call("ZREM", flushed, unpack(old))
  end
end

-- Counts instances and their connections; answers the sum of connections, and the most there were meanwhile.
-- `keys[at]` is the key of the instances over the cap, `args[from]` the first word of the first instance.
local function stats_instances(keys, at, args, from, count, total, now_ms)
  local instances, beats, connections, most = keys[8], keys[9], keys[10], tonumber(args[7])
  local now, peak = string.format("%.0f", now_ms), 0
  for index = 1, count do
    local word, key = from + index * 5 - 5, keys[at + index]
    local name, process, requests, open = args[word], args[word + 1], args[word + 2], args[word + 3]
    if redis.call("ZSCORE", beats, process) or redis.call("ZCARD", beats) < most then
      redis.call("ZADD", beats, now, process)
      if open ~= "" then
        total = math.max(total - (number_read(redis.call("HGET", connections, process) or "0") or 0), 0) + tonumber(open)
        peak = math.max(peak, tonumber(args[word + 4]) - tonumber(open))
        redis.call("HSET", connections, process, open)
      end
    end
    if redis.call("ZSCORE", instances, name) or redis.call("ZCARD", instances) < most then
      redis.call("ZADD", instances, now, name)
    else
      key = keys[at]
    end
    if requests ~= "0" then redis.call("INCRBY", key, requests) end
  end
  return total, total + peak
end

-- What is true now, and the most there was since a process was alive without a break: connections and speed.
local function stats_gauges(keys, at, args, count, now_ms)
  local heartbeat_ms, now_s = args[5], math.floor(now_ms / 1000)
  local total, left = stats_alive(keys[9], keys[10], keys[11], now_ms - tonumber(heartbeat_ms), now_ms)
  if left == 0 then
    redis.call("DEL", keys[5], keys[7], keys[17])
    redis.call("HSET", keys[11], "started_ms", string.format("%.0f", now_ms))
  end
  local most
  total, most = stats_instances(keys, at, args, 18, count, total, now_ms)
  redis.call("HSET", keys[11], "connections", string.format("%.0f", total))
  for index = 9, 11 do redis.call("PEXPIRE", keys[index], 86400000) end
  redis.call("SET", keys[4], string.format("%.0f", total), "PX", heartbeat_ms)
  if most > tonumber(redis.call("GET", keys[5]) or "-1") then redis.call("SET", keys[5], string.format("%.0f", most)) end
  local busiest = stats_seconds(keys[17], keys[11], args[14], now_s)
  if busiest > tonumber(redis.call("GET", keys[7]) or "-1") then redis.call("SET", keys[7], string.format("%.0f", busiest)) end
  local told_s = string.format("%.0f", now_s - 1 - tonumber(args[9]))
  local speed = redis.call("HGET", keys[17], told_s) or "0"
  redis.call("SET", keys[6], number_read(speed) and speed or "0", "PX", heartbeat_ms)
end

-- Where each endpoint is counted: at its own seven keys, or, over the cap, at those of `overflow`. Answers the places,
-- how many the cap kept out, and a key that does not hold what is added to. Reads whatever is written later, and writes
-- nothing: whatever another program left there must not stop the script half way.
local function stats_places(keys, first, over_at, args, from, count)
  local room, kept_out, places = tonumber(args[6]) - redis.call("ZCARD", keys[14]), 0, {}
  local counters = { keys[1], keys[2], keys[3], keys[5], keys[7], keys[18] }
  for index = first, over_at - 1 do counters[#counters + 1] = keys[index] end
  for index = 1, count do
    local at, name = over_at + index * 7, args[from + index * 6 - 6]
    -- `unmatched` and `overflow` have no method in front and are not among those that the cap counts.
    if string.find(name, " ", 1, true) and not redis.call("ZSCORE", keys[14], name) then
      room = room - 1
      if room < 0 then at, kept_out = over_at, kept_out + 1 end
    end
    places[index] = at
    local held = #counters
    counters[held + 1], counters[held + 2], counters[held + 3] = keys[at], keys[at + 1], keys[at + 4]
    redis.call("ZCARD", keys[at + 2])
    redis.call("GET", keys[at + 3])
    local buckets, hour = {}, { "us", "errors" }
    for bucket in string.gmatch(args[from + index * 6 - 2], "(%d+):") do
      buckets[#buckets + 1], hour[#hour + 1] = bucket, bucket
    end
    if not stats_fields(keys[at + 5], buckets) then return places, kept_out, keys[at + 5] end
    if not stats_fields(keys[at + 6], hour) then return places, kept_out, keys[at + 6] end
    local sum = redis.call("HGET", keys[16], at == over_at and "overflow" or name)
    if sum and not stats_sound(sum) then return places, kept_out, keys[16] end
  end
  local seconds = {}
  for second in string.gmatch(args[14], "(%d+):") do seconds[#seconds + 1] = second end
  if not stats_fields(keys[17], seconds) then return places, kept_out, keys[17] end
  local gauge = redis.call("HMGET", keys[11], "connections", "started_ms")
  for index = 1, 2 do
    if gauge[index] and not number_read(gauge[index]) then return places, kept_out, keys[11] end
  end
  redis.call("GET", keys[4])
  redis.call("GET", keys[6])
  for index = 8, 9 do redis.call("ZCARD", keys[index]) end
  for index = 10, 12 do redis.call("HLEN", keys[index]) end
  redis.call("ZCARD", keys[13])
  redis.call("SCARD", keys[15])
  return places, kept_out, stats_spoiled(counters)
end
