-- clean.members: a page of an index, by rank.
--
-- KEYS  1 index   zset    members that name keys
-- ARGV  1 offset  int>=0
--       2 count   int>0
-- OUT   "members"  members(member:bytes score:bytes)..
-- COST  O(log n + offset + count)

local index = KEYS[1]
local offset, count = tonumber(ARGV[1]), tonumber(ARGV[2])

local answer = { "members" }
local held = redis.call("ZRANGE", index, offset, offset + count - 1, "WITHSCORES")
for at = 1, #held do answer[#answer + 1] = held[at] end
return answer
