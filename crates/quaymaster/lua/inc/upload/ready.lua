-- upload/ready: the index of uploads with chunks to claim, by the microsecond from which one may be claimed.
--
-- Whoever looks at an upload and finds nothing more takes it out only if its score is still what it was: every arrival
-- changes the score, also of an upload that is due already, so that no arrival is forgotten between look and removal.
local function ready_at(ready, id, due_us)
  local held = number_read(redis.call("ZSCORE", ready, id) or "")
  if held and held <= due_us then due_us = held - 1 end
  redis.call("ZADD", ready, string.format("%.0f", due_us), id)
end
