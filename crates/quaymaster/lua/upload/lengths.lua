-- upload.lengths: which chunks have bytes under their own keys, and how many.
--
-- KEYS  1.. chunks  string   at most 500
-- ARGV  none
-- OUT   "lengths"  lengths..; -1 where there is no key
-- COST  O(chunks)

local answer = { "lengths" }
for at = 1, #KEYS do
  answer[#answer + 1] = redis.call("EXISTS", KEYS[at]) == 1 and redis.call("STRLEN", KEYS[at]) or -1
end
return answer
