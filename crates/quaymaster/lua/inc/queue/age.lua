-- queue/age: how long the oldest item has waited, in milliseconds; -1 when nothing tells.

-- The last stamp that is not after the item numbered `oldest`: by halves, the list is in order. An item older than all
-- stamps, as it looks where another program has pushed, is taken for the first.
local function queue_age_list(stamps, oldest, now_ms)
  local low, high = 0, redis.call("LLEN", stamps) - 1
  if high < 0 then return -1 end
  for _ = 1, 32 do
    if low >= high then break end
    local middle = math.ceil((low + high) / 2)
    local number = string.match(redis.call("LINDEX", stamps, middle) or "", "^(%d+) ")
    if number and number + 0 <= oldest then low = middle else high = middle - 1 end
  end
  local came_ms = string.match(redis.call("LINDEX", stamps, low) or "", "^%d+ (%d+)$")
  return came_ms and math.max(now_ms - came_ms, 0) or -1
end

local function queue_age_member(member, now_ms)
  local number = string.match(member or "", "^(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d):")
  if not number then return -1 end
  return math.max(now_ms - math.floor((9007199254740991 - number) / 1000), 0)
end

-- The older of two: the next to be claimed, and the oldest of the lowest priority, which waits longest for its turn.
local function queue_age_zset(items, now_ms)
  local lowest = redis.call("ZRANGE", items, 0, 0, "WITHSCORES")[2]
  local last = redis.call("ZRANGE", items, lowest, lowest, "BYSCORE", "REV", "LIMIT", 0, 1)[1]
  local first = redis.call("ZRANGE", items, -1, -1)[1]
  return math.max(queue_age_member(first, now_ms), queue_age_member(last, now_ms))
end
