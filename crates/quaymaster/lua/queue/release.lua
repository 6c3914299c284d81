-- queue.release: jobs that nobody tried go back and are the next to be claimed; the attempt does not count.
--
-- KEYS  1 held      hash  records of claimed jobs
--       2 leases    zset  by the end of their lease
--       3 delayed   zset  by when they are due
-- ARGV  1.. given  @leases  at most 1000 ids
-- OUT   "released"  count
-- COST  O(ids log n)

--@include clock
--@include number
--@include queue/lease
--@include queue/record
--@include queue/back

local held, leases, delayed = KEYS[1], KEYS[2], KEYS[3]
local now_ms = math.floor(clock_us() / 1000)
redis.call("ZCARD", delayed)
local at, released = 1, 0
while at <= #ARGV do
  local count = ARGV[at + 1] + 0
  local ours, number = queue_ours(held, leases, ARGV[at], ARGV, at + 2, at + 1 + count, now_ms)
  if number > 0 then queue_back(held, leases, delayed, ours, now_ms, 0, 1) end
  at, released = at + 2 + count, released + number
end
return { "released", released }
