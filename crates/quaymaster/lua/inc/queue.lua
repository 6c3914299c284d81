-- queue: adding to a queue. A job is in exactly one place: items, delayed, leases, dead or overflow.
--
-- Whoever adds to a queue gives seven of its keys in a row, from `at` on, and these words in a row, from `from` on:
--
-- KEYS  @queue
--       items     any   the public list, or zset for a priority queue
--       meta      hash  switches and counters
--       stamps    list  when which push came
--       overflow  list  items moved out of a full queue
--       jobs      hash  items of claimed and delayed jobs
--       held      hash  their records
--       delayed   zset  delayed jobs and retries, by when they are due
-- ARGV  @queue
--       order     text    fifo (items is a list) or priority (items is a zset)
--       max_size  int>=0  how many may wait, 0 for any number; delayed jobs are counted by themselves
--       policy    text    reject, dlq or drop_oldest
--       delay_ms  int>=0  0 to be claimed at once
--       score     text    the priority
--       count     int>0   how many payloads follow, at most 10,000
--       .. payloads  bytes  raw items
--
-- `queue_fits` comes first, for everything that one step adds, and `queue_add` only when all of it fits. Where one
-- step adds several times, `queue_fits` is asked again right before each `queue_add`, with an empty `adding` and the
-- number found before: a script that has written refuses nothing.

local function queue_length(items, order)
  if order == "fifo" then return redis.call("LLEN", items) end
  return redis.call("ZCARD", items)
end

-- Adds to a counter. HINCRBY would stop a script half-way where another program has left a word; such a counter begins
-- anew.
local function queue_count(meta, name, more)
  local count = number_read(redis.call("HGET", meta, name)) or 0
  redis.call("HSET", meta, name, string.format("%.0f", count + more))
end

-- A store that is out of memory refuses what could grow, unless the script has written something before that cannot.
-- What keeps a lease or settles a job must not be refused: a queue that cannot be acked never drains.
local function queue_insist(hash)
  redis.call("HDEL", hash, "")
end

-- The last number given to a job. Ends the script where it is none, or where the next ones would be none: a number that
-- repeats is a job that is lost.
local function queue_sequence(meta, sequence)
  local number = number_read(sequence or "0")
  if not number or number >= 8.9999e15 then number_refuse(meta, "the field sequence is not a whole number below 8.9999e15") end
  return number
end

-- The first of `count` numbers, from `number` on, under which no job is known; ids are never given twice. None where
-- strangers have taken them all, up to the bound of numbers too.
local function queue_unused(jobs, number, count)
  local step = count
  for _ = 1, 32 do
    if number + count > 9e15 then return nil end
    local last
    for first = number, number + count - 1, 4000 do
      local ids = {}
      for id = first, math.min(first + 3999, number + count - 1) do ids[#ids + 1] = string.format("%.0f", id) end
      for index, held in ipairs(redis.call("HMGET", jobs, unpack(ids))) do
        if held then last = first + index - 1 end
      end
    end
    if not last then return number end
    number, step = last + step, step * 2
  end
end

local function queue_taken(jobs)
  return number_refuse(jobs, "it holds jobs under numbers that were not given to any")
end

-- "fits" | "full", then what `queue_add` wants to know: how many wait, the counter of pushes, when it was stamped, the
-- first number it may give. Reads every key that will be written, so that one of another type, or a sequence that is
-- none, stops the script before its first write. `adding` is an empty table at first and keeps what this step adds:
-- how many by list, and the next number by queue. `given` is a number found before: with it nothing is refused.
local function queue_fits(keys, at, words, from, adding, now_us, given)
  local items, count, max_size = keys[at], words[from + 5] + 0, words[from + 1] + 0
  local waiting = queue_length(items, words[from])
  local meta = redis.call("HMGET", keys[at + 1], "pushed", "stamped", "sequence")
  redis.call("LLEN", keys[at + 2])
  if words[from + 2] == "dlq" then redis.call("LLEN", keys[at + 3]) end
  local list, length, bounded = items, waiting, words[from + 2] == "reject"
  if words[from + 3] ~= "0" then
    redis.call("HLEN", keys[at + 4])
    redis.call("HLEN", keys[at + 5])
    list, length, bounded = keys[at + 6], redis.call("ZCARD", keys[at + 6]), true
  end
  local before = adding[list] or 0
  if bounded and max_size > 0 and length + before + count > max_size then return "full", waiting, 0, 0, 0 end
  adding[list] = before + count
  local number = given or 0
  if not given and (words[from + 3] ~= "0" or words[from] ~= "fifo") then
    number = math.max(queue_sequence(keys[at + 1], meta[3]) + 1, now_us, adding[keys[at + 1]] or 0)
    if words[from + 3] ~= "0" then
      number = queue_unused(keys[at + 4], number, count) or queue_taken(keys[at + 4])
    end
    adding[keys[at + 1]] = number + count
  end
  return "fits", waiting, number_read(meta[1]) or 0, number_read(meta[2]) or 0, number
end

-- Notes when the push numbered `number` came, if that says more than the last note: at most one a second, and fewer the
-- older the oldest is, so that there are some thousand at most. Drops those before the oldest that waits, at most 64.
-- Answers when the last note was written.
local function queue_stamp(stamps, number, oldest, now_ms, stamped)
  if stamped > 0 and stamped <= now_ms then
    if now_ms - stamped < 1000 then return stamped end
    local first = string.match(redis.call("LINDEX", stamps, 0) or "", "^%d+ (%d+)$")
    if first and (now_ms - stamped) * 500 < now_ms - first then return stamped end
  end
  redis.call("RPUSH", stamps, string.format("%.0f %.0f", number, now_ms))
  for _ = 1, 64 do
    local second = string.match(redis.call("LINDEX", stamps, 1) or "", "^(%d+) ")
    if not second or second + 0 > oldest then break end
    redis.call("LPOP", stamps)
  end
  return now_ms
end

-- What a zset's member says: ours are a descending number of 16 digits, `:` and the payload, so that equal payloads
-- stay apart and ZPOPMAX takes the oldest of a priority first; foreign ones are the payload itself.
local function queue_payload(member)
  if string.find(member, "^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d:") then return string.sub(member, 18) end
  return member
end

-- Moves or drops what is too much: the oldest of a list, of a zset what would be claimed last.
local function queue_shed(items, overflow, order, policy, over)
  if policy == "drop_oldest" then
    if order == "fifo" then redis.call("LTRIM", items, over, -1) end
    if order ~= "fifo" then redis.call("ZREMRANGEBYRANK", items, 0, over - 1) end
  elseif order == "fifo" then
    for _ = 1, over do redis.call("LMOVE", items, overflow, "LEFT", "RIGHT") end
  else
    for _ = 1, over do redis.call("RPUSH", overflow, queue_payload(redis.call("ZPOPMIN", items)[1])) end
  end
end

-- Adds what `queue_fits` has let through; answers how many wait then, how many were moved to the overflow list, and
-- how many were dropped. What other programs have put in beyond max_size is shed too, a thousand at a time.
local function queue_add(keys, at, words, from, now_us, waiting, pushed, stamped, number)
  local items, order, policy, count = keys[at], words[from], words[from + 2], words[from + 5] + 0
  local first, last = from + 6, from + 5 + count
  local now_ms = math.floor(now_us / 1000)
  if words[from + 3] ~= "0" then
    local due, held = string.format("%.0f", now_ms + words[from + 3]), "- 0 0 - " .. words[from + 4]
    for index = first, last do
      local id = string.format("%.0f", number + index - first)
      redis.call("HSET", keys[at + 4], id, words[index])
      redis.call("HSET", keys[at + 5], id, held)
      redis.call("ZADD", keys[at + 6], due, id)
    end
    redis.call("HSET", keys[at + 1], "sequence", string.format("%.0f", number + count - 1))
    queue_count(keys[at + 1], "postponed", count)
    return waiting, 0, 0
  end
  if order == "fifo" then
    for index = first, last, 4000 do
      redis.call("RPUSH", items, unpack(words, index, math.min(index + 3999, last)))
    end
  else
    for index = first, last do
      -- A place is taken only where somebody has set the sequence back, or has put it there: one further on is free.
      local added, step = 0, 1
      while added == 0 do
        local place = string.format("%016.0f:", 9007199254740991 - (number + index - first))
        added = redis.call("ZADD", items, "NX", words[from + 4], place .. words[index])
        if added == 0 then number, step = number + step, math.min(step * 2, 2 ^ 30) end
      end
    end
  end
  local over, max_size = 0, words[from + 1] + 0
  if max_size > 0 and waiting + count > max_size then
    over = math.min(waiting + count - max_size, count + 1000)
    queue_shed(items, keys[at + 3], order, policy, over)
    queue_count(keys[at + 1], policy == "dlq" and "overflowed" or "dropped", over)
  end
  local length = waiting + count - over
  if order == "fifo" then
    stamped = queue_stamp(keys[at + 2], pushed + 1, pushed + count - length + 1, now_ms, stamped)
    redis.call("HSET", keys[at + 1], "pushed", string.format("%.0f", pushed + count),
      "stamped", string.format("%.0f", stamped))
  else
    redis.call("HSET", keys[at + 1], "pushed", string.format("%.0f", pushed + count),
      "sequence", string.format("%.0f", number + count - 1))
  end
  return length, policy == "dlq" and over or 0, policy == "drop_oldest" and over or 0
end
