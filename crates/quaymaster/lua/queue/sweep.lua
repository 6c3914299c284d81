-- queue.sweep: leases that have ended are given up: jobs with attempts left wait again, the others are dying.
--
-- KEYS  1 jobs         hash  items of claimed jobs
--       2 held         hash  their records
--       3 leases       zset  by the end of their lease
--       4 delayed      zset  by when they are due
--       5 meta         hash  counters
-- ARGV  1 count        int>0 at most 1000
--       2 lease_ms     int>0 how long the dying are held for who buries them
--       3 token        text
--       4 max_attempts int>0
--       5 budget       int>0 bytes of payloads after which it stops
-- OUT   "swept"  returned  dying(id attempt first_failed_ms ended_ms worker:bytes left_ms score:bytes
--                payload:bytes)..
-- COST  O(count log n)

--@include clock
--@include number
--@include queue
--@include queue/record
--@include queue/claim

local jobs, held, leases, delayed, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now_ms = math.floor(clock_us() / 1000)
local lease_ms, max_attempts, budget = ARGV[2] + 0, ARGV[4] + 0, ARGV[5] + 0
redis.call("HLEN", jobs)
redis.call("HLEN", held)
redis.call("HLEN", meta)
redis.call("ZCARD", delayed)
local now = string.format("%.0f", now_ms)
local found = redis.call("ZRANGEBYSCORE", leases, "-inf", now, "LIMIT", 0, ARGV[1] + 0, "WITHSCORES")
local reply, returned, bytes = { "swept", 0 }, 0, 0
queue_recall(leases, delayed, now_ms, ARGV[1] + 0, lease_ms)
if #found > 0 then queue_insist(held) end
for index = 1, #found, 2 do
  local id, ended = found[index], queue_ended(found[index + 1], now_ms)
  local _, attempt, failed_ms, worker, score = queue_record(redis.call("HGET", held, id))
  local payload = attempt >= max_attempts and redis.call("HGET", jobs, id)
  if failed_ms == "0" then failed_ms = ended end
  if not queue_known(jobs, id) then
    queue_count(meta, "foreign", redis.call("ZREM", leases, id))
  elseif attempt < max_attempts then
    redis.call("ZREM", leases, id)
    redis.call("ZADD", delayed, ended, id)
    redis.call("HSET", held, id, "- " .. attempt .. " " .. failed_ms .. " " .. worker .. " " .. score)
    returned = returned + 1
  elseif not payload then
    -- Nothing is left of it but its place.
    redis.call("ZREM", leases, id)
    redis.call("HDEL", held, id)
  elseif bytes < budget then
    redis.call("ZADD", leases, string.format("%.0f", now_ms + lease_ms), id)
    redis.call("HSET", held, id, ARGV[3] .. " " .. attempt .. " " .. failed_ms .. " " .. worker .. " " .. score)
    local last = #reply
    reply[last + 1], reply[last + 2], reply[last + 3], reply[last + 4] = id, attempt, failed_ms, ended
    reply[last + 5], reply[last + 6], reply[last + 7], reply[last + 8] = worker, lease_ms, score, payload
    bytes = bytes + #payload
  end
end
reply[2] = returned
if #reply > 2 or returned > 0 then queue_count(meta, "expired", returned + (#reply - 2) / 8) end
return reply
