-- run.known: note which ids of an hour's list were taken over; a step of its own where slots part the keys.
--
-- KEYS  1 known  hash  id: how often it is in the list because of us, or was taken over
-- ARGV  1 ttl_ms    int>0
--       2.. items   each
--           item  text
--           seen  int>0  how often it is in the list
-- OUT   "noted"
--       "malformed"  key:bytes
-- COST  O(items)

--@include number

local known, ttl_ms = KEYS[1], ARGV[1]

local more = {}
for index = 2, #ARGV, 2 do
  local held = number_read(redis.call("HGET", known, ARGV[index]) or "0")
  if not held then return { "malformed", known } end
  if tonumber(ARGV[index + 1]) > held then more[#more + 1] = index end
end
for _, index in ipairs(more) do redis.call("HSET", known, ARGV[index], ARGV[index + 1]) end
if #more > 0 then redis.call("PEXPIRE", known, ttl_ms) end
return { "noted" }
