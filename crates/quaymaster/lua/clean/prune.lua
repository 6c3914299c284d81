-- clean.prune: drop members of an index whose keys were not there, unless they came back meanwhile.
--
-- KEYS  1 index     zset  members that name keys
-- ARGV  1.. members  each   at most 200
--           member   bytes
--           score    bytes  as it was read with
-- OUT   "pruned"  count
-- COST  O(pairs log n)

local index = KEYS[1]
local pruned = 0
for at = 1, #ARGV, 2 do
  -- Whoever made the key anew has written another score.
  if redis.call("ZSCORE", index, ARGV[at]) == ARGV[at + 1] then
    pruned = pruned + redis.call("ZREM", index, ARGV[at])
  end
end
return { "pruned", pruned }
