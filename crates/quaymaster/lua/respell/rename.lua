-- respell.rename: give keys the names of today, unless something lies under these already.
--
-- KEYS  1.. names  each  at most 100
--           old    any
--           new    any
-- ARGV  none
-- OUT   "renamed"  outcomes..; for each pair 0 gone, 1 renamed or 2 taken
-- COST  O(pairs)

local answer = { "renamed" }
for at = 1, #KEYS, 2 do
  local old, new = KEYS[at], KEYS[at + 1]
  local there = redis.call("EXISTS", new)
  if redis.call("EXISTS", old) == 0 then
    -- Whoever renamed it, or an earlier attempt of this call, was quicker.
    answer[#answer + 1] = there
  elseif there == 1 then
    answer[#answer + 1] = 2
  else
    redis.call("RENAME", old, new)
    answer[#answer + 1] = 1
  end
end
return answer
