-- upload.metadata: what the client said about the file.
--
-- KEYS  1 metadata   hash
-- ARGV  none
-- OUT   "metadata"  name:bytes  connector_id:bytes  parent_id:bytes  path:bytes  custom_metadata:bytes
--                   client_node_id:bytes; each "" where it was not said
--       "unknown"
-- COST  O(1)

local metadata = KEYS[1]
if redis.call("HLEN", metadata) == 0 then return { "unknown" } end
local answer = { "metadata" }
local held = redis.call("HMGET", metadata, "name", "connector_id", "parent_id", "path", "custom_metadata",
  "client_node_id")
for at = 1, 6 do answer[#answer + 1] = held[at] or "" end
return answer
