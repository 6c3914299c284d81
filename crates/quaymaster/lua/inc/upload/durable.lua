-- upload/durable: a chunk is recorded as a part of the object. The part's number is in the member of `etags`, for two
-- parts of the same bytes have the same ETag.
local function upload_durable(own, number, size, etag)
  redis.call("ZREM", own[5], number)
  redis.call("HDEL", own[6], number)
  redis.call("SETRANGE", own[4], number, "d")
  redis.call("ZREMRANGEBYSCORE", own[7], number, number)
  redis.call("ZADD", own[7], number, string.format("%.0f:%s", number + 1, etag))
  upload_more(own, "bytes_uploaded", size)
end
