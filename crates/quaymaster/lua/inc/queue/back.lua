-- queue/back: jobs go from their lease to the delayed ones. `uncount` attempts are taken back: 1 where nobody tried.
local function queue_back(held, leases, delayed, ids, now_ms, delay_ms, uncount)
  local due, now = string.format("%.0f", now_ms + delay_ms), string.format("%.0f", now_ms)
  local records = redis.call("HMGET", held, unpack(ids))
  for index, id in ipairs(ids) do
    local _, attempt, failed_ms, worker, score = queue_record(records[index])
    if uncount == 0 and failed_ms == "0" then failed_ms = now end
    redis.call("ZREM", leases, id)
    redis.call("ZADD", delayed, due, id)
    redis.call("HSET", held, id, "- " .. math.max(attempt - uncount, 0) .. " " .. failed_ms .. " " .. worker .. " " .. score)
  end
end
