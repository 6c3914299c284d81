-- upload.verify: find waiting chunks whose bytes are not here any more; the client is asked for them again.
--
-- KEYS  1-8 own     @upload
--       9.. chunks  string   the bytes of each chunk named
-- ARGV  1 ttl_ms     int>0
--       2 progress   bytes  channel
--       3 lapsed     int>=0 1: what lies elsewhere has waited long enough, if the upload has FAILED
--       4.. numbers  int    at most 500
-- OUT   "verified"  lost..; the numbers that are lost
-- COST  O(numbers log n), and O(chunks) for the counts when one is lost

--@include clock
--@include number
--@include upload
--@include upload/lose

local spoiled = upload_sound(KEYS)
if spoiled then return spoiled end
local now_ms = math.floor(clock_us() / 1000)
for at = 4, #ARGV do
  spoiled = upload_spoiled(KEYS, ARGV[at])
  if spoiled then return spoiled end
end
local reply = { "verified" }
local elsewhere = not (ARGV[3] == "1" and redis.call("HGET", KEYS[1], "status") == "FAILED")
for at = 4, #ARGV do
  local number = ARGV[at]
  local _, size, place = upload_facts(KEYS, number)
  local here = elsewhere
  if place == "store" then here = size == 0 or redis.call("EXISTS", KEYS[5 + at]) == 1 end
  -- Whoever holds it may have read it already.
  if upload_mark(KEYS, number) == "r" and not here and not upload_held(KEYS, number, now_ms) then
    upload_lose(KEYS, number)
    reply[#reply + 1] = number
  end
end
if #reply > 1 then upload_tell(KEYS, ARGV[1], ARGV[2], now_ms) end
return reply
