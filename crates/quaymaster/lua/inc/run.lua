-- run: the state of a pipeline's run: a documented hash that others read, and beside it what is true.
--
-- Every operation gets the same nine keys first, and the same five words:
--
-- KEYS  @run
--       state      hash  documented fields, rendered from what follows
--       meta       hash  start_us active_us pulsed_us finished_us rendered_us rendered bytes cut was fields ttl_ms peak_*
--       processed  set   items done
--       list       list  the text of the JSON list of them in pieces, without its brackets
--       failures   hash  item: `attempts last_us cut error`
--       failed_at  zset  item by last failure, in milliseconds
--       retry_at   zset  item by the millisecond from which it is handed out for another try
--       tasks      hash  task: `start_us duration_us`, `-` while it runs
--       tasks_at   zset  task by start, in microseconds
-- ARGV  @run
--       ttl_ms    int>0   how long a run is kept whose start named no time of its own
--       keep_ms   int>0   how long a repeated request_id is recognised
--       pulse_ms  int>=0
--       request   int>=0  which key, 0 for none
--       pulse     int>=0  where it begins, 0 for none
--
-- A pulse is what need not be done with every call: the hour's fields, the life of all keys, the index. A call without
-- one is told "pulse" when it is time, has then written nothing, and comes again with it. Its words:
--
-- ARGV  @pulse
--       hour      text
--       start_ms  int>=0
--       end_ms    int>=0
--       keys      json
--       calls     text    the limit's count, or "" to read it from its key, or to leave it where there is no key
--       index     int>=0  which key `runs` is, with `live` behind it, 0 where a step of its own does it
--       counter   int>=0  which key the limit's is, 0 for none
--       id        text
--       calls_field  text  what the state calls the calls of the hour
--       list_field   text  and the list of what is processed
-- KEYS  @run_index
--       runs  zset  runs by last activity
--       live  zset  those at work
--       kept  zset  those with a time of their own, by its milliseconds

-- What the meta has of `active_us`, `pulsed_us` and `was`; and its key if a number there is none. Writes nothing.
local function run_meta(keys)
  local spoiled
  local held = redis.call("HMGET", keys[2], "active_us", "pulsed_us", "was", "start_us", "finished_us", "bytes",
    "rendered", "rendered_us", "ttl_ms", "peak_calls")
  for index = 1, 10 do
    if index ~= 3 and held[index] and not number_read(held[index]) then spoiled = keys[2] end
  end
  return held, spoiled
end

-- Reads what a call may write or tell of, before anything is written: a key of another type stops it here.
local function run_touch(keys, args, pulse)
  redis.call("LLEN", keys[4])
  redis.call("HLEN", keys[5])
  redis.call("ZCARD", keys[6])
  redis.call("ZCARD", keys[7])
  if pulse > 0 then
    local index, counter = tonumber(args[pulse + 5]), tonumber(args[pulse + 6])
    redis.call("SCARD", keys[3])
    redis.call("HLEN", keys[8])
    redis.call("ZCARD", keys[9])
    if counter > 0 then redis.call("GET", keys[counter]) end
    for at = index, index > 0 and index + 2 or -1 do redis.call("ZCARD", keys[at]) end
  end
end

-- Whether a call may write: "go", "malformed" key, "stale" now_ms, "missing", "foreign" (not begun by us, or not all
-- there), "pulse".
local function run_check(keys, args, now_us)
  local word, x = "go"
  local pulse, now_ms = tonumber(args[5]), math.floor(now_us / 1000)
  local held, spoiled = run_meta(keys)
  local told = redis.call("HEXISTS", keys[1], "status") == 1
  run_touch(keys, args, pulse)
  if spoiled then
    word, x = "malformed", spoiled
  elseif pulse > 0 and (now_ms < args[pulse + 1] + 0 or now_ms >= args[pulse + 2] + 0) then
    word, x = "stale", now_ms
  elseif not held[1] and not told and redis.call("EXISTS", keys[1]) == 0 then
    word = "missing"
  elseif not held[1] or not told then
    word = "foreign"
  elseif pulse == 0 then
    local since_us = now_us - (tonumber(held[2] or "") or 0)
    -- A clock that was set back must not keep it from beating.
    if held[3] or since_us < 0 or since_us >= args[3] * 1000 then word = "pulse" end
  end
  return word, x
end

-- How long the run is kept, in milliseconds: what its start said, or the schema.
local function run_ttl(keys, args)
  return redis.call("HGET", keys[2], "ttl_ms") or args[1]
end

-- Whether nothing more is expected of the run: it was finished, or another program says so in its status.
local function run_over(keys)
  local status = redis.call("HGET", keys[1], "status")
  return redis.call("HEXISTS", keys[2], "finished_us") == 1 or status == "completed" or status == "failed"
    or status == "cancelled"
end

-- Notes in an index that a run was active: never back in time, unless what stands there is yet to come.
local function run_indexed(index, now_ms, id)
  local held = tonumber(redis.call("ZSCORE", index, id) or "")
  if not held or held < now_ms or held > now_ms + 60000 then
    redis.call("ZADD", index, string.format("%.0f", now_ms), id)
  end
end

-- Renders the hour and its calls, together, from the limit's own counter.
local function run_hour(keys, args)
  local pulse = tonumber(args[5])
  local calls, counter = args[pulse + 4], tonumber(args[pulse + 6])
  if counter > 0 then calls = string.match(redis.call("GET", keys[counter]) or "", "^%d+$") or "0" end
  local held = redis.call("HMGET", keys[1], "current_hour", args[pulse + 8], "redis_keys")
  -- A count that nobody could be asked for leaves the hour and its calls as they were, which belong together. A run that
  -- shows none yet begins with 0.
  if calls == "" then
    if held[1] then return end
    calls = "0"
  end
  local count = number_read(calls)
  if count and count > (tonumber(redis.call("HGET", keys[2], "peak_calls") or "") or -1) then
    redis.call("HSET", keys[2], "peak_calls", calls, "peak_hour", args[pulse])
  end
  if held[1] ~= args[pulse] or held[2] ~= calls or held[3] ~= args[pulse + 3] then
    redis.call("HSET", keys[1], "current_hour", args[pulse], args[pulse + 8], calls, "redis_keys", args[pulse + 3])
  end
end

-- Renders the documented list of what is processed into its field. O(n) of its text.
local function run_render(keys, field, now_us)
  local pieces = redis.call("LRANGE", keys[4], 0, -1)
  redis.call("HSET", keys[1], field, "[" .. table.concat(pieces) .. "]")
  local bytes = redis.call("HGET", keys[2], "bytes") or "0"
  redis.call("HSET", keys[2], "rendered", bytes, "rendered_us", string.format("%.0f", now_us))
end

-- A sign of life, and with a pulse all that belongs to it. Answers 0 without one, 1 for a run at work, 2 for one that is
-- over: what the index is to say.
local function run_active(keys, args, now_us)
  local pulse, now = tonumber(args[5]), string.format("%.0f", now_us)
  local beat = 0
  redis.call("HSET", keys[2], "active_us", now)
  if pulse > 0 then
    local was = redis.call("HGET", keys[2], "was")
    if was then
      if redis.call("HGET", keys[1], "status") == "stale" then redis.call("HSET", keys[1], "status", was) end
      redis.call("HDEL", keys[2], "was")
    end
    -- What was counted in the hour of its end stays, whoever comes late.
    if redis.call("HEXISTS", keys[2], "finished_us") == 0 then run_hour(keys, args) end
    redis.call("HSET", keys[2], "pulsed_us", now)
    -- The longer the list, the seldomer it is rendered: a hundred thousand bytes a second at most.
    local held = redis.call("HMGET", keys[2], "bytes", "rendered", "rendered_us")
    local bytes = tonumber(held[1] or "0")
    local wait_us = math.max(args[3] * 1000, bytes * 10)
    if held[1] ~= held[2] and math.abs(now_us - (held[3] or "0")) >= wait_us then
      run_render(keys, args[pulse + 9], now_us)
    end
    local ttl_ms = run_ttl(keys, args)
    for index = 1, 9 do redis.call("PEXPIRE", keys[index], ttl_ms) end
    beat = run_over(keys) and 2 or 1
    local at = tonumber(args[pulse + 5])
    if at > 0 then
      local ms = math.floor(now_us / 1000)
      run_indexed(keys[at], ms, args[pulse + 7])
      if beat == 2 then
        redis.call("ZREM", keys[at + 1], args[pulse + 7])
      else
        run_indexed(keys[at + 1], ms, args[pulse + 7])
      end
    end
  end
  return beat
end

-- Adds items to what is processed: `count` pairs of item and JSON text ("" where quotes are enough) from `from` on. Takes
-- them off the failures. Answers how many were new.
local function run_add(keys, args, from, count, max_bytes)
  local added, new, failed = 0, {}, redis.call("HLEN", keys[5]) > 0
  for index = from, from + 2 * (count - 1), 2 do
    local item, json = args[index], args[index + 1]
    if redis.call("SADD", keys[3], item) == 1 then
      added = added + 1
      new[added] = json ~= "" and json or '"' .. item .. '"'
    end
    if failed and redis.call("HDEL", keys[5], item) == 1 then
      redis.call("ZREM", keys[6], item)
      redis.call("ZREM", keys[7], item)
    end
  end
  if added == 0 then return 0 end
  if redis.call("SCARD", keys[3]) == added then redis.call("PEXPIRE", keys[3], run_ttl(keys, args)) end
  local held = redis.call("HMGET", keys[2], "bytes", "cut")
  local bytes = tonumber(held[1] or "0")
  local text = (bytes > 0 and "," or "") .. table.concat(new, ",")
  -- What the list has no room for is counted all the same; nothing may follow it.
  if held[2] or bytes + #text > max_bytes then
    redis.call("HSET", keys[2], "cut", "1")
    return added
  end
  local tail = redis.call("LINDEX", keys[4], -1)
  if tail and #tail + #text <= 4096 then
    redis.call("LSET", keys[4], -1, tail .. text)
  else
    for at = 1, #text, 16384 do redis.call("RPUSH", keys[4], string.sub(text, at, at + 16383)) end
    if not tail then redis.call("PEXPIRE", keys[4], run_ttl(keys, args)) end
  end
  redis.call("HSET", keys[2], "bytes", string.format("%.0f", bytes + #text))
  return added
end

-- What is to be known of a run, without its list: the words of OUT in `run.show`. Only for a call with a pulse.
local function run_view(keys, args, word, now_us, stale_ms)
  local meta = redis.call("HMGET", keys[2], "start_us", "active_us", "finished_us", "bytes", "cut", "peak_calls",
    "peak_hour")
  local told = redis.call("HMGET", keys[1], "status", "start_time", "current_hour", args[tonumber(args[5]) + 8],
    "redis_keys")
  local over = run_over(keys)
  local stale = not over and now_us - (meta[2] or "0") > stale_ms * 1000
  local view = {
    word, string.format("%.0f", now_us), meta[1] or "0", meta[2] or "0", meta[3] or "0", over and 1 or 0,
    (stale or told[1] == "stale") and 1 or 0, told[1] or "", told[2] or "", told[3] or "", told[4] or "0",
    told[5] or "", meta[6] or "0", meta[7] or "", redis.call("SCARD", keys[3]), redis.call("HLEN", keys[5]), meta[4] or "0", meta[5] and 1 or 0,
    redis.call("HLEN", keys[8]),
  }
  local at, names = #view + 1, {}
  view[at] = 0
  for name in string.gmatch(redis.call("HGET", keys[2], "fields") or "", "[^\n]+") do
    if #names < 200 then names[#names + 1] = name end
  end
  if #names > 0 then
    local values = redis.call("HMGET", keys[1], unpack(names))
    for index, name in ipairs(names) do
      if values[index] then
        view[at] = view[at] + 1
        view[#view + 1], view[#view + 2] = name, values[index]
      end
    end
  end
  local tasks = redis.call("ZREVRANGE", keys[9], 0, 999)
  if #tasks > 0 then
    local times = redis.call("HMGET", keys[8], unpack(tasks))
    for index, task in ipairs(tasks) do view[#view + 1], view[#view + 2] = task, times[index] or "0 -" end
  end
  return view
end
