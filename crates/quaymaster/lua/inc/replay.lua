-- replay: a repeated request_id gets the answer its first call got.
--
-- The record is `op`, the status word and the integers, separated by spaces. `shape` is a pattern of what must follow
-- `op`, in which # stands for a count, ~ for a negative number and = for an id, which is kept with a = in front;
-- `or_shape` may be another one.
--
-- A record of another call is a "conflict". A record that no call of ours wrote is one too, with `err`: returned by
-- the script, it is an error reply that names the key.
local function replay_refused(request, held)
  -- The build puts the names here that scripts call `replay_read` with. A run's retry keeps its record by itself.
  local verbs = " @replayed retry "
  local verb, mark = string.match(held, "^([a-z_]+)([: ])%S")
  -- Behind these stands a token.
  if mark == ":" then verbs = " leave release abandon " end
  local refused = { "conflict" }
  if not verb or not string.find(verbs, " " .. verb .. " ", 1, true) then
    refused.err = "MALFORMED " .. request .. " holds no answer to a request_id of ours:"
      .. " use another request_id, or remove the key if another program wrote it"
  end
  return refused
end

local function replay_read(request, op, shape, or_shape)
  local held = redis.call("GET", request)
  local found, other
  if held and string.sub(held, 1, #op + 1) ~= op .. " " then
    other = held
  elseif held then
    local form = {}
    found = {}
    for part in string.gmatch(string.sub(held, #op + 2), "%S+") do
      local number = #part <= 17 and string.find(part, "^%-?%d+$") and tonumber(part)
      local sign = number and (number < 0 and "~" or number < 9007199254740992 and "#")
      if not sign then sign = string.match(part, "^[%l_]+$") or string.match(part, "^[=-]") or "?" end
      found[#found + 1], form[#form + 1] = number or part, sign
    end
    form = table.concat(form, " ")
    if not string.find(form, shape) and not (or_shape and string.find(form, or_shape)) then
      other = ""
    end
  end
  if other then
    found = replay_refused(request, other)
  end
  return found
end

local function replay_keep(request, op, ttl_ms, word, x, y, z)
  redis.call("SET", request, string.format("%s %s %.0f %.0f %.0f", op, word, x, y, z), "PX", ttl_ms)
end

-- The same for an answer of any length.
local function replay_keep_all(request, op, ttl_ms, reply)
  local record = { op }
  for _, part in ipairs(reply) do
    record[#record + 1] = type(part) == "number" and string.format("%.0f", part) or part
  end
  redis.call("SET", request, table.concat(record, " "), "PX", ttl_ms)
end
