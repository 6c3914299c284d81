-- upload.status: all there is to know of an upload, with its metadata if they are wanted.
--
-- KEYS  1-8 own  @upload
-- ARGV  1 wanted  int>=0  1: metadata too
-- OUT   "state"    now_ms  map:bytes  node_id:bytes  multipart_id:bytes  key:bytes  drive:bytes  status:bytes
--                  expected_size:bytes  received:bytes  uploaded:bytes  total:bytes  last:bytes  created_ms:bytes
--                  updated_ms:bytes  mime_type:bytes  final_etag:bytes  final_size:bytes  error:bytes  deadline_ms:bytes
--                  bytes_received:bytes  bytes_durable:bytes  sized:bytes  seq:bytes  aborted:bytes  first_ms:bytes
--                  metadata(name:bytes connector_id:bytes parent_id:bytes path:bytes custom_metadata:bytes
--                  client_node_id:bytes)..; the metadata once, if they are wanted; each "" where it is missing
--       "unknown"
-- COST  O(chunks), a byte each

--@include clock
--@include number
--@include upload

local wanted = ARGV[1] == "1"
local spoiled = upload_numbers(KEYS)
if spoiled then return spoiled end
local state = redis.call("HMGET", KEYS[1], "node_id", "s3_upload_id", "s3_key", "drive", "status", "expected_size",
  "received_chunks", "uploaded_chunks", "total_chunks", "is_last_received", "created_at", "updated_at", "mime_type",
  "final_etag", "final_size", "error_message")
if not state[5] then return { "unknown" } end
local work = redis.call("HMGET", KEYS[2], "deadline", "bytes_received", "bytes_uploaded", "sized", "seq", "aborted",
  "first_at")
local answer = { "state", string.format("%.0f", math.floor(clock_us() / 1000)), redis.call("GET", KEYS[4]) or "" }
for at = 1, 16 do answer[#answer + 1] = state[at] or "" end
for at = 1, 7 do answer[#answer + 1] = work[at] or "" end
if wanted then
  local said = redis.call("HMGET", KEYS[8], "name", "connector_id", "parent_id", "path", "custom_metadata",
    "client_node_id")
  for at = 1, 6 do answer[#answer + 1] = said[at] or "" end
end
return answer
