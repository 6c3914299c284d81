-- stats.sketches: the response times of some endpoints, in buckets, and their sum of all time.
--
-- KEYS  1 micros      hash  sums by endpoint
--       2.. sketches  hash  buckets; any number, which the caller bounds
-- ARGV  1.. endpoints  text  those whose sums are asked for
-- OUT   "sketches"  sums:any  sketches:any..; each the fields and values of one sketch
-- COST  O(n) of the buckets

local answer = { "sketches", {} }
if #ARGV > 0 then
  for _, held in ipairs(redis.call("HMGET", KEYS[1], unpack(ARGV))) do answer[2][#answer[2] + 1] = held or "0" end
end
for index = 2, #KEYS do answer[#answer + 1] = redis.call("HGETALL", KEYS[index]) end
return answer
