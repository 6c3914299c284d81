-- limit.take_all: several limits in one step; all are counted or none is.
--
-- KEYS  1.. states  any     one per limit, at most 16
--       + request?  string  the answer kept for a repeated request_id
-- ARGV  1 keep_ms      int>0   how long a repeated request_id is recognised
--       2.. limits     each
--           algorithm  text
--           cost       int>0
--           limit      int>=0
--           window     int>0   this and what follows as its own take has them, filled up with zeros
--           ttl_ms     int>0
--           third      word
--           fourth     word
--           spare      int
-- OUT   "allowed"    verdicts(word:bytes x y z)..; per limit, as its own take answers
--       "limited"    verdicts(word:bytes x y z)..; per limit, as its own peek answers
--       "stale"      now_ms
--       "malformed"  limit; counted from 1
--       "conflict"
-- COST  O(limits × their own cost), at most 16

--@include clock
--@include number
--@include replay
--@include limit/fixed_window
--@include limit/sliding_log
--@include limit/sliding_window
--@include limit/token_bucket

local STRIDE = 8
local count = (#ARGV - 1) / STRIDE
local request = KEYS[count + 1]
local check = {
  fixed_window = fixed_window_check, sliding_log = sliding_log_check,
  sliding_window = sliding_window_check, token_bucket = token_bucket_check,
}
local commit = {
  fixed_window = fixed_window_commit, sliding_log = sliding_log_commit,
  sliding_window = sliding_window_commit, token_bucket = token_bucket_commit,
}

if request then
  local kept = replay_read(request, "take_all", "^allowed" .. string.rep(" allowed # # #", count) .. "$")
  if kept then return kept end
end
local now_us = clock_us()
local limits, reply = {}, { "allowed" }
for index = 1, count do
  local at = 1 + (index - 1) * STRIDE
  local own = { algorithm = ARGV[at + 1] }
  for part = 1, 4 do own[part] = tonumber(ARGV[at + 1 + part]) end
  own[5], own[6] = ARGV[at + 6], ARGV[at + 7]
  local word, x, y, z = check[own.algorithm](KEYS[index], now_us, own[1], own[2], own[3], own[4], own[5], own[6])
  if word == "stale" then return { "stale", x } end
  if word == "malformed" then return { "malformed", index } end
  if word == "limited" then reply[1] = "limited" end
  limits[index] = own
  for _, part in ipairs({ word, x, y, z }) do reply[#reply + 1] = part end
end
for index = 1, count do
  local own, key, at = limits[index], KEYS[index], index * 4 - 2
  local word, x, y, z = reply[at], reply[at + 1], reply[at + 2], reply[at + 3]
  if reply[1] == "allowed" then
    x, y, z = commit[own.algorithm](key, now_us, own[1], own[2], own[3], own[4], own[5], own[6], x, y, z)
  elseif own.algorithm == "fixed_window" and word == "limited" and fixed_window_ails(key, own[6], z) then
    fixed_window_commit(key, now_us, 0, own[2], own[3], own[4], own[5], own[6], x, y, 2)
  elseif own.algorithm == "sliding_window" and word == "limited" then
    sliding_window_heal(key, now_us, own[3], own[4])
  elseif own.algorithm == "sliding_log" and word == "limited" then
    sliding_log_heal(key, math.floor(now_us / 1000), own[3], own[4], y)
  elseif own.algorithm == "token_bucket" and word == "limited" then
    token_bucket_heal(key, now_us, own[2], own[3], own[4])
  end
  reply[at + 1], reply[at + 2], reply[at + 3] = x, y, z
end
if request and reply[1] == "allowed" then replay_keep_all(request, "take_all", ARGV[1], reply) end
return reply
