-- upload.keep: let bytes that another program put under a chunk's key live as long as a chunk's.
--
-- KEYS  1 chunk   string
-- ARGV  1 size    int>=0
--       2 ttl_ms  int>0
-- OUT   "kept"
--       "differs"  length; they are not as many
-- COST  O(1)

local chunk, size, ttl_ms = KEYS[1], tonumber(ARGV[1]), ARGV[2]

local length = redis.call("STRLEN", chunk)
if length ~= size then return { "differs", length } end
redis.call("PEXPIRE", chunk, ttl_ms)
return { "kept" }
