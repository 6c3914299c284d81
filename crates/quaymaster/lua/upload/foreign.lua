-- upload.foreign: the state of an upload that another program began, as it is.
--
-- KEYS  1-8 own  @upload
-- ARGV  none
-- OUT   "foreign"  etags  node_id:bytes  multipart_id:bytes  key:bytes  drive:bytes  mime_type:bytes  status:bytes
--                  expected_size:bytes  uploaded_chunks:bytes  total_chunks:bytes; etags: how many there are; each ""
--                  where it is missing
--       "ours"
--       "unknown"
-- COST  O(1)

if redis.call("EXISTS", KEYS[2]) == 1 then return { "ours" } end
if redis.call("HLEN", KEYS[1]) == 0 then return { "unknown" } end
local answer = { "foreign", redis.call("ZCARD", KEYS[7]) }
local held = redis.call("HMGET", KEYS[1], "node_id", "s3_upload_id", "s3_key", "drive", "mime_type", "status",
  "expected_size", "uploaded_chunks", "total_chunks")
for at = 1, 9 do answer[#answer + 1] = held[at] or "" end
return answer
