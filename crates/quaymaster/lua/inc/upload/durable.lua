-- upload/durable: a chunk is recorded as a part of the object. Its ETag is the member of `etags`, as documented; where
-- another part has the same one, for its bytes are the same, the part's number stands before it.
local function upload_durable(own, number, size, etag)
  redis.call("ZREM", own[5], number)
  redis.call("HDEL", own[6], number)
  redis.call("SETRANGE", own[4], number, "d")
  redis.call("ZREMRANGEBYSCORE", own[7], number, number)
  if redis.call("ZSCORE", own[7], etag) then etag = string.format("%.0f:%s", number + 1, etag) end
  redis.call("ZADD", own[7], number, etag)
  upload_more(own, "bytes_uploaded", size)
end
