-- replay: a repeated request_id gets the answer its first call got.
--
-- The record is `op`, the status word and the integers, separated by spaces.
local function replay_read(request, op)
  local kept = redis.call("GET", request)
  if not kept then return nil end
  local reply = {}
  for part in string.gmatch(kept, "%S+") do reply[#reply + 1] = tonumber(part) or part end
  if table.remove(reply, 1) ~= op then return { "conflict" } end
  return reply
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
