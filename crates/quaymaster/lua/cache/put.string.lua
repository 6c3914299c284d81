-- cache.put.string: keep a value, and end a load in progress.
--
-- KEYS  1 entry     string  the value
--       2 load      string  who loads it, and until when
--       3 request?  string  the answer kept for a repeated request_id
-- ARGV  1 value    bytes
--       2 ttl_ms   int>=0  0 keeps it for ever
--       3 when     text    always; absent: only if there is none; unsealed: only if there is no sealed one
--       4 channel  bytes   where those listen who wait for the value
--       5 keep_ms  int>0   how long a repeated request_id is recognised
-- OUT   "stored"
--       "present"
--       "conflict"
-- COST  O(n) of the value

--@include replay
--@include cache

local entry, load, request = KEYS[1], KEYS[2], KEYS[3]
local value, ttl_ms, when, channel, keep_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

if request then
  local kept = replay_read(request, "put", "^stored$")
  if kept then return kept end
end
if when == "absent" and redis.call("EXISTS", entry) == 1 then return { "present" } end
if when == "unsealed" and redis.call("TYPE", entry).ok == "string" then
  if cache_sealed(redis.call("GET", entry)) then return { "present" } end
end
cache_write_string(entry, value, ttl_ms)
local waited = cache_settle(load)
if request then replay_keep_all(request, "put", keep_ms, { "stored" }) end
cache_wake(waited, channel)
return { "stored" }
