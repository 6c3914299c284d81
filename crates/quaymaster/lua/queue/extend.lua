-- queue.extend: leases begin anew, those that are held and live.
--
-- KEYS  1 held      hash  records of claimed jobs
--       2 leases    zset  by the end of their lease
-- ARGV  1 lease_ms  int>0
--       2.. given   @leases  at most 1000 ids
-- OUT   "extended"  ids..; those that are held
-- COST  O(ids log n)

--@include clock
--@include number
--@include queue
--@include queue/lease

local held, leases = KEYS[1], KEYS[2]
local now_ms = math.floor(clock_us() / 1000)
local ends = string.format("%.0f", now_ms + ARGV[1])
local at, reply = 2, { "extended" }
queue_insist(held)
while at <= #ARGV do
  local count = ARGV[at + 1] + 0
  local ours = queue_ours(held, leases, ARGV[at], ARGV, at + 2, at + 1 + count, now_ms)
  for _, id in ipairs(ours) do
    redis.call("ZADD", leases, ends, id)
    reply[#reply + 1] = id
  end
  at = at + 2 + count
end
return reply
