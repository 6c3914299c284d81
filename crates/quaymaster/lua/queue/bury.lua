-- queue.bury: jobs become dead letters; only those whose lease is held and lives.
--
-- KEYS  1 jobs      hash   items of claimed jobs
--       2 held      hash   their records
--       3 leases    zset   by the end of their lease
--       4 dead      list   dead letters
--       5 meta      hash   counters
--       6 request?  string the answer kept for a repeated request_id, or that of the claim which handed them out
-- ARGV  1 keep_ms    int>=0  how long a repeated request_id is recognised; 0: a claim that got nothing else is forgotten
--       2.. letters  each    at most 1000
--           prefix   text    token attempt
--           id       int
--           letter   bytes
-- OUT   "buried"  ids..
-- COST  O(jobs log n)

--@include clock
--@include number
--@include replay
--@include queue
--@include queue/lease

local jobs, held, leases, dead, meta, request = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local now_ms = math.floor(clock_us() / 1000)
redis.call("HLEN", jobs)
redis.call("LLEN", dead)
redis.call("HLEN", meta)
local reply = { "buried" }
for at = 2, #ARGV, 3 do
  local id = ARGV[at + 1]
  if queue_ours(held, leases, ARGV[at], ARGV, at + 1, at + 1, now_ms)[1] then
    -- What frees memory comes first: a store that has none left lets the letter be written then.
    redis.call("HDEL", held, id)
    redis.call("HDEL", jobs, id)
    redis.call("ZREM", leases, id)
    redis.call("RPUSH", dead, ARGV[at + 2])
    reply[#reply + 1] = id
  end
end
if #reply > 1 then
  queue_count(meta, "dead", #reply - 1)
  if request and ARGV[1] ~= "0" then replay_keep_all(request, "nack", ARGV[1], { "dead", 0 }) end
end
if request and ARGV[1] == "0" then redis.call("DEL", request) end
return reply
