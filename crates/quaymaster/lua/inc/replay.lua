-- replay: a repeated request_id gets the answer its first call got.
--
-- The record is `op`, the status word and the integers, separated by spaces. `request` is nil when the
-- caller sent no request_id; then nothing is read or kept.
local function replay_read(request, op)
  local kept = request and redis.call("GET", request)
  if not kept then return nil end
  local reply = {}
  for part in string.gmatch(kept, "%S+") do reply[#reply + 1] = tonumber(part) or part end
  if table.remove(reply, 1) ~= op then return { "conflict" } end
  return reply
end

local function replay_keep(request, op, ttl_ms, word, x, y, z)
  if request then
    local record = string.format("%s %s %.0f %.0f %.0f", op, word, x, y, z)
    redis.call("SET", request, record, "PX", ttl_ms)
  end
  return { word, x, y, z }
end

-- The same for an answer of any length.
local function replay_keep_all(request, op, ttl_ms, reply)
  if not request then return end
  local record = { op }
  for _, part in ipairs(reply) do
    record[#record + 1] = type(part) == "number" and string.format("%.0f", part) or part
  end
  redis.call("SET", request, table.concat(record, " "), "PX", ttl_ms)
end
