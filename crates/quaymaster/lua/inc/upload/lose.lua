-- upload/lose: a chunk that was received or durable is to be sent again. Its digest stays: the same bytes are wanted.
local function upload_lose(own, number)
  local durable = upload_mark(own, number) == "d"
  local _, size = upload_facts(own, number)
  redis.call("ZREM", own[5], number)
  redis.call("HDEL", own[6], number)
  redis.call("SETRANGE", own[4], number, "m")
  upload_more(own, "bytes_received", -size)
  if durable then
    redis.call("ZREMRANGEBYSCORE", own[7], number, number)
    upload_more(own, "bytes_uploaded", -size)
  end
end
