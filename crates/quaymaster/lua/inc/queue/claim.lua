-- queue/claim: handing out jobs. Eight keys in a row, from `at` on, and these words in a row, from `from` on:
--
-- KEYS  @claim
--       items     any   the public list, or zset for a priority queue
--       meta      hash  switches and counters
--       stamps    list  when which push came
--       overflow  list  takes items too large to deliver
--       jobs      hash  items of claimed and delayed jobs
--       held      hash  their records
--       delayed   zset  delayed jobs and retries, by when they are due
--       leases    zset  claimed jobs, by the end of their lease
-- ARGV  @claim
--       order         text    fifo or priority
--       count         int>=0  at most 1000; 0, to claim nothing, only behind an ack
--       lease_ms      int>0
--       token         text    unique per claim; a repeated request_id derives it anew
--       worker        text    who claims, - for none
--       max_attempts  int>0
--       budget        int>0   no more is handed out once the payloads have so many bytes
--       largest       int>0   an item with more bytes than this cannot be delivered; it goes to the overflow list

-- Stops the script before its first write where a key is of another type, or the sequence is none.
local function queue_sound(keys, at, order)
  queue_length(keys[at], order)
  queue_sequence(keys[at + 1], redis.call("HGET", keys[at + 1], "sequence"))
  redis.call("LLEN", keys[at + 2])
  redis.call("LLEN", keys[at + 3])
  redis.call("HLEN", keys[at + 4])
  redis.call("HLEN", keys[at + 5])
  redis.call("ZCARD", keys[at + 6])
  redis.call("ZCARD", keys[at + 7])
end

-- Whether a member is the id of a job. A number above those that are given out is one if it has a job: a clock that was
-- once wrong has made such ids, of 17 digits. One that is no 64-bit integer could not be told to anybody.
local function queue_known(jobs, id)
  return number_read(id) or (#id <= 18 and string.find(id, "^[1-9]%d*$") and redis.call("HEXISTS", jobs, id) == 1)
end

-- Ids whose lease has ended, then those whose time has come, each the longest first; `ends` has the lease's end, or
-- false for a delayed one. Members that are no ids are removed and counted: they would stand in front for ever.
local function queue_due(meta, jobs, leases, delayed, now_ms, most)
  local ids, ends, now, foreign = {}, {}, string.format("%.0f", now_ms), 0
  local found = redis.call("ZRANGEBYSCORE", leases, "-inf", now, "LIMIT", 0, most, "WITHSCORES")
  for index = 1, #found, 2 do
    if queue_known(jobs, found[index]) then
      ids[#ids + 1] = found[index]
      ends[#ids] = queue_ended(found[index + 1], now_ms)
    else
      foreign = foreign + redis.call("ZREM", leases, found[index])
    end
  end
  if #found < 2 * most then
    for _, id in ipairs(redis.call("ZRANGEBYSCORE", delayed, "-inf", now, "LIMIT", 0, most - #ids)) do
      if queue_known(jobs, id) then
        ids[#ids + 1] = id
        ends[#ids] = false
      else
        foreign = foreign + redis.call("ZREM", delayed, id)
      end
    end
  end
  if foreign > 0 then queue_count(meta, "foreign", foreign) end
  return ids, ends
end

-- Brings back what would come never, at most `most` of each: a lease that ends later than any does (a day) ends after
-- `lease_ms`, and a job that is due later than any is (a year) is due.
local function queue_recall(leases, delayed, now_ms, most, lease_ms)
  local after, due = string.format("(%.0f", now_ms + 86400000), string.format("(%.0f", now_ms + 31622400000)
  local ends, now = string.format("%.0f", now_ms + lease_ms), string.format("%.0f", now_ms)
  for _, id in ipairs(redis.call("ZRANGEBYSCORE", leases, after, "+inf", "LIMIT", 0, most)) do
    redis.call("ZADD", leases, ends, id)
  end
  for _, id in ipairs(redis.call("ZRANGEBYSCORE", delayed, due, "+inf", "LIMIT", 0, most)) do
    redis.call("ZADD", delayed, now, id)
  end
end

-- In a priority queue a job that comes again keeps its place: it is handed out only if it is among the highest.
local function queue_weigh(items, ids, ends, records, count)
  local order, scores = {}, {}
  for index = 1, #ids do
    local _, _, _, _, score = queue_record(records[index])
    order[index], scores[index] = index, tonumber(score) or 0
  end
  table.sort(order, function(one, two)
    if scores[one] ~= scores[two] then return scores[one] > scores[two] end
    return one < two
  end)
  local best, chosen, ended = {}, {}, {}
  for place, index in ipairs(order) do
    local higher = redis.call("ZCOUNT", items, string.format("(%.17g", scores[index]), "+inf")
    if #best + higher >= count or place > count then break end
    best[#best + 1], chosen[#best + 1], ended[#best + 1] = ids[index], records[index], ends[index]
  end
  return best, ended, chosen
end

-- Hands out again what is due, into `reply`: id, attempt, dying, first_failed_ms, ended_ms, worker, left_ms, score,
-- payload. A job whose attempts are used up is dying: under the new token, but not to be tried again. Answers how many,
-- and their bytes.
local function queue_again(keys, at, words, from, now_ms, reply)
  local count, lease_ms, max_attempts = words[from + 1] + 0, words[from + 2] + 0, words[from + 5] + 0
  local jobs, held, delayed, leases = keys[at + 4], keys[at + 5], keys[at + 6], keys[at + 7]
  local most = count
  -- By priority a few would not do: the highest may have come last.
  if words[from] ~= "fifo" then most = 1000 end
  local ids, ends = queue_due(keys[at + 1], jobs, leases, delayed, now_ms, most)
  if #ids == 0 then return 0, 0 end
  local records = redis.call("HMGET", held, unpack(ids))
  if words[from] ~= "fifo" then ids, ends, records = queue_weigh(keys[at], ids, ends, records, count) end
  local taken, bytes, expired, budget = 0, 0, 0, words[from + 6] + 0
  local lease_end = string.format("%.0f", now_ms + lease_ms)
  queue_insist(held)
  for index, id in ipairs(ids) do
    if bytes >= budget then break end
    local payload = redis.call("HGET", jobs, id)
    local ended = ends[index]
    if not payload then
      -- Nothing is left of it but its place.
      redis.call("ZREM", leases, id)
      redis.call("ZREM", delayed, id)
      redis.call("HDEL", held, id)
    else
      local _, attempt, failed_ms, worker, score = queue_record(records[index])
      if ended then
        expired = expired + 1
        if failed_ms == "0" then failed_ms = ended end
      else
        redis.call("ZREM", delayed, id)
      end
      local dying = attempt >= max_attempts and 1 or 0
      if dying == 0 then attempt = attempt + 1 end
      redis.call("ZADD", leases, lease_end, id)
      redis.call("HSET", held, id,
        words[from + 3] .. " " .. attempt .. " " .. failed_ms .. " " .. words[from + 4] .. " " .. score)
      local last = #reply
      reply[last + 1], reply[last + 2], reply[last + 3], reply[last + 4] = id, attempt, dying, failed_ms
      reply[last + 5], reply[last + 6], reply[last + 7] = ended or "0", worker, lease_ms
      reply[last + 8], reply[last + 9] = score, payload
      taken, bytes = taken + 1, bytes + #payload
    end
  end
  if expired > 0 then queue_count(keys[at + 1], "expired", expired) end
  return taken, bytes
end

-- Takes up to `room` items from the head of a list: more with every step, so that few large ones are ever in hand, and
-- what exceeds the budget goes back where it was.
local function queue_pop_list(items, overflow, room, bytes, budget, largest)
  local payloads, count, step = {}, 0, 1
  local shed = 0
  while count < room and bytes < budget do
    local wanted = math.min(step, room - count)
    local got = redis.call("LPOP", items, wanted)
    if not got then break end
    for index = 1, #got do
      local payload = got[index]
      if bytes >= budget then
        for back = #got, index, -1 do redis.call("LPUSH", items, got[back]) end
        break
      elseif #payload > largest then
        redis.call("RPUSH", overflow, payload)
        shed = shed + 1
      else
        count = count + 1
        payloads[count] = payload
        bytes = bytes + #payload
      end
    end
    if #got < wanted then break end
    step = math.min(step * 4, 128)
  end
  return payloads, count, shed
end

-- The same for a zset, the highest score first; with the scores.
local function queue_pop_zset(items, overflow, room, bytes, budget, largest)
  local payloads, scores, count, step = {}, {}, 0, 1
  local shed = 0
  while count < room and bytes < budget do
    local wanted = math.min(step, room - count)
    local got = redis.call("ZPOPMAX", items, wanted)
    for index = 1, #got, 2 do
      local payload = queue_payload(got[index])
      if bytes >= budget then
        for back = index, #got, 2 do redis.call("ZADD", items, got[back + 1], got[back]) end
        break
      elseif #payload > largest then
        redis.call("RPUSH", overflow, payload)
        shed = shed + 1
      else
        count = count + 1
        payloads[count], scores[count] = payload, got[index + 1]
        bytes = bytes + #payload
      end
    end
    if #got < wanted * 2 then break end
    step = math.min(step * 4, 128)
  end
  return payloads, count, shed, scores
end

-- A store keeps small hashes and zsets as one string that it walks from end to end, and makes tables of them for good
-- as soon as something long is in them: 65 bytes, here and gone. It does no harm, and for a hundred jobs at once it is
-- the greater part of the time.
local function queue_spread(jobs, held, leases)
  local long = string.rep("-", 65)
  redis.call("HSET", jobs, long, "")
  redis.call("HSET", held, long, "")
  redis.call("ZADD", leases, 0, long)
  return long
end

-- The first of `count` unused ids, or none. They count on from it, and only in their last four digits, which are none with a 0 in
-- front: those are written much faster than all sixteen.
local function queue_number(jobs, number, count)
  for _ = 1, 32 do
    local low = number % 10000
    if low < 1000 or low + count > 10000 then number = number - low + (low < 1000 and 1000 or 11000) end
    if count == 0 then return number end
    local free = queue_unused(jobs, number, count)
    if free == number then return number end
    if not free then break end
    number = free
  end
end

-- Hands out what waits, into `reply`: how many, the first id (the others count on from it), the payloads; in a priority
-- queue each with its score. All of them are written by three commands out of one table: score, id, value, id, value …
-- Nothing where there is no `number` to give.
local function queue_fresh(keys, at, words, from, now_ms, room, bytes, number, stamped, reply)
  if not number then
    reply[#reply + 1], reply[#reply + 2] = 0, "0"
    return 0, 0
  end
  local ordered, budget, largest = words[from] ~= "fifo", words[from + 6] + 0, words[from + 7] + 0
  local payloads, count, shed, scores
  if ordered then
    payloads, count, shed, scores = queue_pop_zset(keys[at], keys[at + 3], room, bytes, budget, largest)
  else
    payloads, count, shed = queue_pop_list(keys[at], keys[at + 3], room, bytes, budget, largest)
  end
  if shed > 0 then queue_count(keys[at + 1], "overflowed", shed) end
  local low = number % 10000
  local last = #reply
  reply[last + 1], reply[last + 2] = count, string.format("%.0f", number)
  last = last + 2
  if count == 0 then return 0, shed end
  local jobs, held, leases = keys[at + 4], keys[at + 5], keys[at + 7]
  local long = count > 16 and queue_spread(jobs, held, leases)
  local lease_end = string.format("%.0f", now_ms + words[from + 2])
  local row, high = { lease_end }, string.format("%.0f", (number - low) / 10000)
  for index = 1, count do
    local payload = payloads[index]
    row[2 * index], row[2 * index + 1] = high .. (low + index - 1), payload
    reply[last + index] = payload
  end
  redis.call("HSET", jobs, unpack(row, 2, 2 * count + 1))
  local record = words[from + 3] .. " 1 0 " .. words[from + 4] .. " "
  if ordered then
    for index = 1, count do
      row[2 * index + 1] = record .. scores[index]
      reply[last + 2 * index - 1], reply[last + 2 * index] = scores[index], payloads[index]
    end
  else
    record = record .. "0"
    for index = 3, 2 * count + 1, 2 do row[index] = record end
  end
  redis.call("HSET", held, unpack(row, 2, 2 * count + 1))
  for index = 3, 2 * count, 2 do row[index] = lease_end end
  redis.call("ZADD", leases, unpack(row, 1, 2 * count))
  if long then
    redis.call("HDEL", jobs, long)
    redis.call("HDEL", held, long)
    redis.call("ZREM", leases, long)
  end
  redis.call("HSET", keys[at + 1], "sequence", string.format("%.0f", number + count - 1))
  -- The stamps tell of pushes that all have left.
  if not ordered and stamped and stamped ~= "0" and redis.call("LLEN", keys[at]) == 0 then
    redis.call("DEL", keys[at + 2])
    redis.call("HSET", keys[at + 1], "stamped", "0")
  end
  return count, shed
end

-- Milliseconds until a lease ends or a delayed job is due, -1 when there is none.
local function queue_next(leases, delayed, now_ms)
  local lease = redis.call("ZRANGE", leases, 0, 0, "WITHSCORES")[2]
  local due = redis.call("ZRANGE", delayed, 0, 0, "WITHSCORES")[2]
  local first = math.min(tonumber(lease) or math.huge, tonumber(due) or math.huge)
  if first > 9e15 then return -1 end
  return math.max(math.ceil(first - now_ms), 0)
end

-- Whether a lease has ended or a delayed job's time has come.
local function queue_is_due(leases, delayed, now_ms)
  local now = string.format("%.0f", now_ms)
  return redis.call("ZCOUNT", leases, "-inf", now) + redis.call("ZCOUNT", delayed, "-inf", now) > 0
end

-- The whole claim, behind `queue_sound`, into `reply`: "jobs" or "paused", next_ms, how many come again, those, how many are fresh, the first
-- id of them, those. Answers how many there are in all.
local function queue_claim(keys, at, words, from, now_us, reply)
  local now_ms = math.floor(now_us / 1000)
  local head = #reply
  local switches = redis.call("HMGET", keys[at + 1], "paused", "sequence", "stamped")
  if switches[1] == "1" then
    reply[head + 1], reply[head + 2], reply[head + 3], reply[head + 4], reply[head + 5] = "paused", -1, 0, 0, "0"
    return 0
  end
  reply[head + 1], reply[head + 2], reply[head + 3] = "jobs", 0, 0
  local sequence, waiting = number_read(switches[2]) or 0, queue_length(keys[at], words[from])
  local number = queue_number(keys[at + 4], math.max(sequence + 1, now_us), math.min(words[from + 1] + 0, waiting))
  -- A refusal must be the only thing that happens: what was acked is answered, and what comes again needs no number.
  if not number and head == 0 and not queue_is_due(keys[at + 7], keys[at + 6], now_ms) then queue_taken(keys[at + 4]) end
  local taken, bytes = queue_again(keys, at, words, from, now_ms, reply)
  reply[head + 3] = taken
  local room = words[from + 1] - taken
  local count, shed = queue_fresh(keys, at, words, from, now_ms, room, bytes, number, switches[3], reply)
  if taken + count == 0 then
    reply[head + 2] = shed > 0 and 0 or queue_next(keys[at + 7], keys[at + 6], now_ms)
  end
  return taken + count
end

-- The ids that a claim has put into `reply`, whose word is reply[head], as a record keeps them: with = in front, since
-- one of 17 digits is no count, and with =- those of the dying.
local function queue_claimed(reply, head)
  local ids, taken = {}, reply[head + 2]
  for index = 1, taken do
    local at = head + 3 + 9 * (index - 1)
    ids[index] = (reply[at + 2] == 1 and "=-" or "=") .. reply[at]
  end
  local fresh = head + 3 + 9 * taken
  for index = 1, reply[fresh] do
    ids[taken + index] = string.format("=%.0f", reply[fresh + 1] + index - 1)
  end
  return ids
end

-- The ids in the record of a request, from kept[from] on. Earlier versions wrote them without =.
local function queue_ids(kept, from)
  local ids = {}
  for index = from, #kept do
    local id = kept[index]
    ids[#ids + 1] = type(id) == "number" and string.format("%.0f", id) or string.sub(id, 2)
  end
  return ids
end

-- What a claim that comes again may still have of the ids it got: into `reply`, as `queue_claim` does, with -2 for
-- next_ms: whoever waits gets nothing else under this request.
local function queue_still(keys, at, token, ids, now_ms, reply)
  local head = #reply
  reply[head + 1], reply[head + 2], reply[head + 3] = "jobs", -2, 0
  local taken = 0
  for _, given in ipairs(ids) do
    local id = string.match(given, "%d+")
    local holder, attempt, failed_ms, worker, score = queue_record(redis.call("HGET", keys[at + 5], id))
    local ends = math.min(tonumber(redis.call("ZSCORE", keys[at + 7], id) or "0") or 0, 9e15)
    local payload = redis.call("HGET", keys[at + 4], id)
    if holder == token and ends > now_ms and payload then
      local last = #reply
      reply[last + 1], reply[last + 2], reply[last + 3], reply[last + 4] = id, attempt, id == given and 0 or 1, failed_ms
      reply[last + 5], reply[last + 6], reply[last + 7], reply[last + 8] = "0", worker, ends - now_ms, score
      reply[last + 9] = payload
      taken = taken + 1
    end
  end
  local last = #reply
  reply[head + 3], reply[last + 1], reply[last + 2] = taken, 0, "0"
end
