-- respell.note: remember which keys of a schema have no old name any more.
--
-- KEYS  1 note   string  one per schema
-- ARGV  1 names  text    a digest of their patterns
-- OUT   "noted"
-- COST  O(1)

local note = KEYS[1]
local names = ARGV[1]

-- First what cannot grow: a folder above its memory bound is opened all the same.
redis.call("DEL", note)
redis.call("SET", note, names)
return { "noted" }
