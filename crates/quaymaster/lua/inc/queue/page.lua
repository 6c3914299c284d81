-- queue/page: a piece of a list, `count` items from `offset` on, into `reply`; no more once they have `budget` bytes.
local function queue_page(list, offset, count, budget, reply)
  local bytes, at, step = 0, offset, 1
  while at < offset + count and bytes < budget do
    local wanted = math.min(step, offset + count - at)
    local got = redis.call("LRANGE", list, at, at + wanted - 1)
    for _, item in ipairs(got) do
      if bytes >= budget then break end
      reply[#reply + 1] = item
      bytes = bytes + #item
    end
    if #got < wanted then break end
    at, step = at + wanted, math.min(step * 4, 128)
  end
end
