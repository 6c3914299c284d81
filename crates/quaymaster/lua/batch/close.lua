-- batch.close: queue a batch that is due, and forget it, in one step; once, whoever comes first.
--
-- KEYS  1 open           zset    batch ids by the millisecond they close
--       2 current        string  the id of the batch that takes items
--       3 by             string  the batch's own, as in `inc/batch.lua`
--       4 items          string
--       5 started_at     string
--       6 last_activity  string
--       7 size           string
--       8 ids            set
--       9-15 queue       @queue
-- ARGV  1 id        text
--       2 length    int>=0  of the list that was read and rendered
--       3 ttl_ms    int>0
--       4 again_ms  int>0   when to try again while the queue is full
--       5 far_ms    int>0   a deadline further away than this is none that Quaymaster gave
--       6- add      @queue
-- OUT   "closed"   queue_length  dropped
--       "gone"
--       "early"    left_ms
--       "changed"
--       "full"
-- COST  O(log n) of open batches, and what the queue costs

--@include clock
--@include number
--@include queue

local open, current = KEYS[1], KEYS[2]
local id, length, ttl_ms, again_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local far_ms = tonumber(ARGV[5])

local closes_ms = tonumber(redis.call("ZSCORE", open, id) or "")
if not closes_ms then return { "gone" } end
local now_us = clock_us()
local now_ms = math.floor(now_us / 1000)
if closes_ms > now_ms and closes_ms <= now_ms + far_ms then return { "early", math.ceil(closes_ms - now_ms) } end
-- A list that grew or shrank since it was read is not what was rendered.
if redis.call("STRLEN", KEYS[4]) ~= length then return { "changed" } end
local word, waiting, pushed, stamped, number = queue_fits(KEYS, 9, ARGV, 6, {}, now_us)
-- Queued or not, it takes no more; of a store without memory, what frees some is taken first.
if redis.call("GET", current) == id then redis.call("DEL", current) end
if word == "full" then
  -- It waits, and its keys must not expire meanwhile.
  for index = 3, 8 do redis.call("PEXPIRE", KEYS[index], ttl_ms) end
  redis.call("ZADD", open, string.format("%.0f", now_ms + again_ms), id)
  return { "full" }
end
redis.call("DEL", KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8])
redis.call("ZREM", open, id)
local queued, _, dropped = queue_add(KEYS, 9, ARGV, 6, now_us, waiting, pushed, stamped, number)
return { "closed", queued, dropped }
