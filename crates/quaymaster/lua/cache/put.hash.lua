-- cache.put.hash: keep fields in place of all that were there, and end a load in progress.
--
-- KEYS  1 entry     hash    the fields
--       2 load      string  who loads it, and until when
--       3 request?  string  the answer kept for a repeated request_id
-- ARGV  1 ttl_ms    int>=0  0 keeps it for ever
--       2 when      text    always; absent: only if there is none; unsealed: only if there is no sealed one
--       3 channel   bytes   where those listen who wait for the value
--       4 keep_ms   int>0   how long a repeated request_id is recognised
--       5.. fields  each
--           field   bytes
--           value   bytes
-- OUT   "stored"
--       "present"
--       "conflict"
-- COST  O(n) fields, those removed and those written; at most 1000 are written

--@include replay
--@include cache

local entry, load, request = KEYS[1], KEYS[2], KEYS[3]
local ttl_ms, when, channel, keep_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if request then
  local kept = replay_read(request, "put", "^stored$")
  if kept then return kept end
end
if when == "absent" and redis.call("EXISTS", entry) == 1 then return { "present" } end
if when == "unsealed" and redis.call("TYPE", entry).ok == "hash" then
  if cache_sealed_all(redis.call("HGETALL", entry)) then return { "present" } end
end
cache_write_hash(entry, ttl_ms, ARGV, 5)
local waited = cache_settle(load)
if request then replay_keep_all(request, "put", keep_ms, { "stored" }) end
cache_wake(waited, channel)
return { "stored" }
