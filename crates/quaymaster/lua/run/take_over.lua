-- run.take_over: make what other programs listed as failed in an hour failures of a run.
--
-- KEYS  1-9 run   @run
--       10 known?  hash  id: how often it is in the hour's list because of us, or was taken over
-- ARGV  1-5 frame        @run
--       6 max_failures   int>0
--       7 failed_us      int>=0  when they failed, as far as is known: the start of the hour
--       8 failed_ms      int>=0
--       9 known_at       int>=0  which key `known` is, 0 where a step of its own does it
--       10 known_ttl_ms  int>0
--       11 why           text
--       12.. items       each
--           item  text
--           seen  int>0  how often it is in the list
--           held  int>=0  how often of them it is known, where the script does not see it
-- OUT   "taken"      count
--       "missing"
--       "malformed"  key:bytes
--       "full"
-- COST  O(items)

--@include clock
--@include number
--@include run

local max, failed_us, failed_ms, why = tonumber(ARGV[6]), ARGV[7], ARGV[8], ARGV[11]
local known, known_ttl_ms = KEYS[tonumber(ARGV[9])], ARGV[10]

if redis.call("HEXISTS", KEYS[2], "active_us") == 0 or redis.call("EXISTS", KEYS[1]) == 0 then return { "missing" } end
local _, spoiled = run_meta(KEYS)
if spoiled then return { "malformed", spoiled } end
run_touch(KEYS, ARGV, 0)
redis.call("SCARD", KEYS[3])
local new = {}
for index = 12, #ARGV, 3 do
  local item, seen, held = ARGV[index], tonumber(ARGV[index + 1]), tonumber(ARGV[index + 2])
  -- Another caller may have taken it over since the list was read.
  if known then held = number_read(redis.call("HGET", known, item) or "0") end
  if not held then return { "malformed", known } end
  if seen > held then new[#new + 1] = { item, seen, seen - held } end
end
if redis.call("HLEN", KEYS[5]) + #new > max then return { "full" } end
local count = 0
for _, row in ipairs(new) do
  local item = row[1]
  -- What the run has done, or lists already, is no other failure.
  if redis.call("SISMEMBER", KEYS[3], item) == 0
    and redis.call("HSETNX", KEYS[5], item, string.format("%.0f ", row[3]) .. failed_us .. " 0 " .. why) == 1 then
    redis.call("ZADD", KEYS[6], failed_ms, item)
    redis.call("ZADD", KEYS[7], failed_ms, item)
    count = count + 1
  end
  if known then redis.call("HSET", known, item, string.format("%.0f", row[2])) end
end
if count > 0 then
  for index = 5, 7 do redis.call("PEXPIRE", KEYS[index], run_ttl(KEYS, ARGV)) end
end
if known and #new > 0 then redis.call("PEXPIRE", known, known_ttl_ms) end
return { "taken", count }
