-- upload.rekey: name the object of an upload by another key, where its state still has the former one.
--
-- KEYS  1 state  hash
-- ARGV  1 was    text  the key that the state may have
--       2 key    text  the key from now on
-- OUT   "rekeyed"
--       "kept"; the state is gone, or has another key
-- COST  O(1)

local state, was, key = KEYS[1], ARGV[1], ARGV[2]
if redis.call("HGET", state, "s3_key") ~= was then return { "kept" } end
redis.call("HSET", state, "s3_key", key)
return { "rekeyed" }
