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
