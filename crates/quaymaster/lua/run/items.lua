-- run.items: a page of the text of what is processed.
--
-- KEYS  1 list  list    pieces of a JSON list, without its brackets
-- ARGV  1 from  int>=0
--       2 to    int>=0
-- OUT   "items"  pieces:bytes..
-- COST  O(from + pieces)

local list = KEYS[1]
local answer = redis.call("LRANGE", list, ARGV[1], ARGV[2])
table.insert(answer, 1, "items")
return answer
