-- limit.take_all: several limits in one step; all are counted or none is.
--
-- KEYS  1.. state   any     one key per limit, at most 16
-- ARGV  1.. limits  text    nine per limit: algorithm, cost, limit, then four of its own, two unused
-- OUT   "allowed"  {word x y z} per limit, as its own take answers
--       "limited"  {word x y z} per limit, as its own peek answers
--       "stale"    now_ms
--       "malformed" index of the limit
-- COST  O(limits), at most 16

--@include clock
--@include limit/fixed_window
--@include limit/sliding_log
--@include limit/sliding_window
--@include limit/token_bucket

local STRIDE = 9
local check = {
  fixed_window = fixed_window_check, sliding_log = sliding_log_check,
  sliding_window = sliding_window_check, token_bucket = token_bucket_check,
}
local commit = {
  fixed_window = fixed_window_commit, sliding_log = sliding_log_commit,
  sliding_window = sliding_window_commit, token_bucket = token_bucket_commit,
}

local now_us = clock_us()
local limits, answers, verdict = {}, {}, "allowed"
for index = 1, #KEYS do
  local at = (index - 1) * STRIDE
  local own = { algorithm = ARGV[at + 1] }
  for part = 2, 7 do own[part - 1] = tonumber(ARGV[at + part]) or ARGV[at + part] end
  local word, x, y, z = check[own.algorithm](KEYS[index], now_us, own[1], own[2], own[3], own[4], own[5], own[6])
  if word == "stale" then return { "stale", x } end
  if word == "malformed" then return { "malformed", index } end
  if word == "limited" then verdict = "limited" end
  limits[index], answers[index] = own, { word, x, y, z }
end
for index = 1, #KEYS do
  local own, a = limits[index], answers[index]
  if verdict == "allowed" then
    a[2], a[3], a[4] = commit[own.algorithm](KEYS[index], now_us, own[1], own[2], own[3], own[4],
      own[5], own[6], a[2], a[3], a[4])
  elseif a[1] == "limited" and own.algorithm == "fixed_window" then
    fixed_window_heal(KEYS[index], now_us, own[4], own[6], a[2], a[3])
  elseif a[1] == "allowed" and own.algorithm == "sliding_log" and a[2] > 0 then
    a[3] = sliding_log_reset(KEYS[index], math.floor(now_us / 1000), own[3])
  end
end
return { verdict, unpack(answers) }
