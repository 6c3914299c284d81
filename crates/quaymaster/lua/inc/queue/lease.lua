-- queue/lease: who holds a job. Jobs are named by what their records begin with, any number of times:
--
-- ARGV  @leases
--       prefix  text   token and attempt, each with a space behind it
--       count   int>0  how many ids follow
--       .. ids  int
--
-- A record is `token attempt first_failed_ms worker priority`, the token first, so that
-- `token attempt ` is compared as its beginning; a job that nobody holds has the token `-`. A lease lives until its
-- score in `leases`, by the store's clock: whoever comes later has lost it, whether or not anybody else has the job.

-- Ids among words[first..last] whose record begins with `prefix` and whose lease lives. A batch of one claim has one
-- record for all of its jobs, so most are found alike without looking at them.
local function queue_ours(held, leases, prefix, words, first, last, now_ms)
  local ours, count, alike = {}, 0, nil
  local records = redis.call("HMGET", held, unpack(words, first, last))
  local ended = redis.call("ZRANGEBYSCORE", leases, "-inf", string.format("%.0f", now_ms), "LIMIT", 0, 1)[1]
  for index = first, last do
    local record = records[index - first + 1]
    if record and (record == alike or string.sub(record, 1, #prefix) == prefix) then
      alike = record
      if not ended or (tonumber(redis.call("ZSCORE", leases, words[index]) or "0") or 0) > now_ms then
        count = count + 1
        ours[count] = words[index]
      end
    end
  end
  return ours, count
end

-- Removes every job whose lease is given and lives, from words[from] to words[last]: prefix, count, ids, and again.
-- Answers how many there were and how many leases were given. Keys: jobs, held, leases and meta.
local function queue_done(jobs, held, leases, meta, words, from, last, now_ms)
  local given, found = 0, 0
  local at, all = from, {}
  redis.call("HLEN", jobs)
  local before = number_read(redis.call("HGET", meta, "acked")) or 0
  while at <= last do
    local count = words[at + 1] + 0
    local ours, number = queue_ours(held, leases, words[at], words, at + 2, at + 1 + count, now_ms)
    if number > 0 then all[#all + 1] = ours end
    given, found, at = given + count, found + number, at + 2 + count
  end
  local acked = 0
  for _, ours in ipairs(all) do
    acked = acked + redis.call("HDEL", held, unpack(ours))
    redis.call("HDEL", jobs, unpack(ours))
    redis.call("ZREM", leases, unpack(ours))
  end
  -- A lease that was given twice is held once. Counted last: a store without memory takes what frees some first.
  if acked > 0 then redis.call("HSET", meta, "acked", string.format("%.0f", before + acked)) end
  return acked, given
end
