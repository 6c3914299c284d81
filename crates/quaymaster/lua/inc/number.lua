-- number: whole numbers that are read from keys. Above 2^53 one more is the same number, and ids repeat: nothing that
-- is read from a key may come near it. The bound is a round number below, which microseconds reach in the year 2255.

-- The number that `text` is, if it is a plain one: digits alone, no zero in front, below 9e15; else nil.
local function number_read(text)
  if not text or #text > 16 or not (text == "0" or string.find(text, "^[1-9]%d*$")) then return nil end
  local number = tonumber(text)
  return number < 9e15 and number or nil
end

-- Ends the script before its first write: `key` holds what nobody of ours has written. The engines answer `key.malformed`.
local function number_refuse(key, what)
  error("MALFORMED " .. key .. ": " .. what, 0)
end

-- A score as such a number, the nearest there is: another program may have put any score there.
local function number_score(text)
  return math.floor(math.min(math.max(tonumber(text), 0), 9e15))
end

-- What a script returns, before its first write, when `key` holds what nobody of ours has written.
local function number_malformed(key)
  return { err = "MALFORMED " .. key .. " does not hold what Quaymaster keeps there: inspect it, or remove it" }
end
