-- replay: a repeated request_id gets the answer its first call got.
--
-- The record is `op`, the status word and the integers, separated by spaces.
local function replay_read(request, op)
  local held = redis.call("GET", request)
  local answer
  if held then
    answer = {}
    for part in string.gmatch(held, "%S+") do answer[#answer + 1] = tonumber(part) or part end
    if table.remove(answer, 1) ~= op then answer = { "conflict" } end
  end
  return answer
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
