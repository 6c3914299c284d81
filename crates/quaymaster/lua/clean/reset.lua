-- clean.reset: take away a number that no call can go on from, or only say so. The next one is the store's time.
--
-- KEYS  1 key    any   a queue's counters, or the last fence of a lock
-- ARGV  1 field  text  which field of the counters; - where the key itself is the number
--       2 mode   text  look or apply
-- OUT   "sound"
--       "found"
--       "done"
-- COST  O(1)

--@include number

local key = KEYS[1]
local field, mode = ARGV[1], ARGV[2]

local whole = field == "-"
if redis.call("TYPE", key).ok ~= (whole and "string" or "hash") then return { "sound" } end
local held = whole and redis.call("GET", key) or not whole and redis.call("HGET", key, field)
if not held or (number_read(held) or 9e15) < 8.9999e15 then return { "sound" } end
if mode == "look" then return { "found" } end
if whole then redis.call("DEL", key) else redis.call("HDEL", key, field) end
return { "done" }
