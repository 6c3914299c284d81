-- idempotency: one record per operation, who runs it or what it answered.
--
--   in progress   p <token> <deadline_ms> <fp>
--   finished      f <fp> <tail> <enc> <bytes>     without a response: f <fp> <tail>, formerly with - behind it
--   foreign       1                               finished, and nothing to replay
--
-- fp is the request's fingerprint, `-` for none; it stays for the record's whole life. tail is the end of the
-- finisher's token, by which it knows its own finish when it repeats it. enc says what the bytes are:
-- r raw, z zstd, s sealed, t zstd and sealed. The deadline decides whether a claim lives; the TTL is the broom.
local function idempotency_read(record)
  local held = redis.call("GET", record)
  if not held then return "none" end
  if held == "1" then return "f", "-", "-", "-", "" end
  local token, deadline_ms, fp = string.match(held, "^p (%S+) (%d+) (%S+)$")
  if token then
    local deadline = number_read(deadline_ms)
    if not deadline then return "malformed" end
    return "p", fp, token, deadline
  end
  local finished_fp, tail, rest = string.match(held, "^f (%S+) (%S+)()")
  if not finished_fp then return "malformed" end
  if rest > #held or (rest == #held - 1 and string.sub(held, rest) == " -") then
    return "f", finished_fp, tail, "-", ""
  end
  local enc = string.match(string.sub(held, rest, rest + 2), "^ ([rzst]) $")
  if not enc then return "malformed" end
  return "f", finished_fp, tail, enc, string.sub(held, rest + 3)
end

-- "free" | "ours" remaining_ms | "in_progress" remaining_ms | "finished" enc bytes | "mismatch" 0 kept_fp | "malformed" 0
--
-- Fingerprints differ only when both are given; the kept one is told, since it may have been made with a key that
-- has been changed since. A claim past its deadline is nobody's, whatever it says.
local function idempotency_check(record, token, fp, now_ms)
  local state, kept, holder, x, y = idempotency_read(record)
  if state == "malformed" then return "malformed", 0 end
  if state == "none" or (state == "p" and x <= now_ms) then return "free" end
  if fp ~= "-" and kept ~= "-" and fp ~= kept then return "mismatch", 0, kept end
  if state == "f" then return "finished", x, y end
  return holder == token and "ours" or "in_progress", x - now_ms
end

-- Claims a record that the check found free.
local function idempotency_commit(record, token, fp, in_progress_ms, now_ms)
  local claim = string.format("p %s %.0f %s", token, now_ms + in_progress_ms, fp)
  redis.call("SET", record, claim, "PX", string.format("%.0f", in_progress_ms + 1000))
end

-- "finished" same enc bytes anew | "lost" | "malformed": only by the holder of a live claim, or by the one who
-- finished it before. What stays is the first response: same is 0 and it follows when it is not the one given.
-- When `anew`, the caller wakes those who wait, as the last step of its script.
local function idempotency_finish(record, token, ttl_ms, enc, bytes, now_ms)
  local state, fp, holder, x, held = idempotency_read(record)
  if state == "malformed" then return "malformed" end
  local tail = string.sub(token, -8)
  if state == "f" and holder == tail then
    if x == enc and held == bytes then return "finished", 1, "-", "", false end
    return "finished", 0, x, held, false
  end
  if state ~= "p" or holder ~= token or x <= now_ms then return "lost" end
  local finished = "f " .. fp .. " " .. tail
  if enc ~= "-" then finished = finished .. " " .. enc .. " " .. bytes end
  -- A store that is out of memory refuses what could grow, unless something was written before that cannot. What has
  -- run must not be refused its end: it would run again.
  redis.call("PEXPIRE", record, ttl_ms)
  redis.call("SET", record, finished, "PX", ttl_ms)
  return "finished", 1, "-", "", true
end

-- "abandoned" | "lost" | "malformed": the next one may begin at once. When abandoned, the caller wakes those who wait.
local function idempotency_abandon(record, token, now_ms)
  local state, _, holder, deadline_ms = idempotency_read(record)
  if state == "malformed" then return "malformed" end
  if state ~= "p" or holder ~= token or deadline_ms <= now_ms then return "lost" end
  redis.call("DEL", record)
  return "abandoned"
end
