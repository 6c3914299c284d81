-- batch: items collected under the id that `current` holds, until the deadline that `open` gives it.
--
-- One add is told by fourteen keys and eleven arguments, wherever they lie in the script's own; `keys[at]` and
-- `args[from]` are the first of them:
--
-- KEYS  @batch
--       current              string  the id of the batch that takes items
--       open                 zset    batch ids by the millisecond they close
--       guess_by             string  the guessed batch's own: what it is grouped by
--       guess_items          string  a JSON list
--       guess_started_at     string  seconds
--       guess_last_activity  string  seconds
--       guess_size           string
--       guess_ids            set     of the items that have one
--       fresh_by             string  the same of the fresh batch
--       fresh_items          string
--       fresh_started_at     string
--       fresh_last_activity  string
--       fresh_size           string
--       fresh_ids            set
-- ARGV  @batch
--       guess      text
--       fresh      text
--       by         text
--       item       bytes
--       item_id    text    "" for none
--       window_ms  int>0
--       idle_ms    int>0
--       max_items  int>=0  0 for none
--       max_bytes  int>0
--       ttl_ms     int>0
--       max_open   int>0
--
-- The caller guesses which batch is open, so that every key is declared; a wrong guess writes nothing and is told the
-- right one. A batch past its deadline takes nothing more: the next item begins the fresh one, and a sweep queues the
-- old one, which stays in `open` until then.

-- Where the item goes: "add" to the guessed batch, "new" to the fresh one, "duplicate" size, "elsewhere" id,
-- "foreign" id (open, but not begun by us), "malformed" key, "full". Writes nothing, and reads whatever `batch_commit`
-- relies on, so that nothing stops it half-way.
local function batch_check(keys, at, args, from, now_us)
  local guess = args[from]
  local id = redis.call("GET", keys[at])
  if id and id ~= guess then return "elsewhere", id end
  local length = id and redis.call("STRLEN", keys[at + 3]) or 0
  if length > 0 then
    local closes_ms = tonumber(redis.call("ZSCORE", keys[at + 1], guess) or "")
    local started, count = redis.call("GET", keys[at + 4]), redis.call("GET", keys[at + 6])
    redis.call("GET", keys[at + 5])
    redis.call("SCARD", keys[at + 7])
    if started and not number_read(string.match(started, "^(%d+)%.?%d*$")) then return "malformed", keys[at + 4] end
    local size = number_read(count)
    if count and not size then return "malformed", keys[at + 6] end
    if not closes_ms or not size then return "foreign", id end
    if closes_ms > math.floor(now_us / 1000) then
      local item_id = args[from + 4]
      if item_id ~= "" and redis.call("SISMEMBER", keys[at + 7], item_id) == 1 then return "duplicate", size end
      if redis.call("GETRANGE", keys[at + 3], -1, -1) ~= "]" then return "malformed", keys[at + 3] end
      if length + 1 + #args[from + 3] <= tonumber(args[from + 8]) then return "add", size end
    end
  end
  if redis.call("ZCARD", keys[at + 1]) >= tonumber(args[from + 10]) then return "full", 0 end
  return "new", 0
end

-- Puts the item where the check said; answers the batch, its size, and 1 when it takes no more and is to be queued.
local function batch_commit(keys, at, args, from, now_us, word)
  local current, open = keys[at], keys[at + 1]
  local guess, id, item, item_id = args[from], args[from], args[from + 3], args[from + 4]
  local window_ms, idle_ms = tonumber(args[from + 5]), tonumber(args[from + 6])
  local max_items, ttl_ms = tonumber(args[from + 7]), args[from + 9]
  local now_ms = math.floor(now_us / 1000)
  local now_s = string.format("%.0f.%06.0f", math.floor(now_us / 1000000), now_us % 1000000)
  local own, started_ms, size = at + 2, now_ms, 1
  if word == "add" then
    local length = redis.call("STRLEN", keys[own + 1])
    redis.call("SETRANGE", keys[own + 1], length - 1, (length > 2 and "," or "") .. item .. "]")
    redis.call("SET", keys[own + 3], now_s, "KEEPTTL")
    size = redis.call("INCR", keys[own + 4])
    started_ms = math.floor((tonumber(redis.call("GET", keys[own + 2]) or "") or now_us / 1000000) * 1000)
    if started_ms > now_ms then
      -- A clock that was wrong has left a beginning in the future: the window begins now.
      redis.call("SET", keys[own + 2], now_s, "KEEPTTL")
      started_ms = now_ms
    end
  else
    -- A batch that is full by its bytes is due; one past its deadline is so already.
    if redis.call("ZSCORE", open, guess) then
      redis.call("ZADD", open, "LT", string.format("%.0f", now_ms), guess)
    end
    own, id = at + 8, args[from + 1]
    redis.call("SET", current, id, "PX", ttl_ms)
    redis.call("SET", keys[own], args[from + 2], "PX", ttl_ms)
    redis.call("SET", keys[own + 1], "[" .. item .. "]", "PX", ttl_ms)
    redis.call("SET", keys[own + 2], now_s, "PX", ttl_ms)
    redis.call("SET", keys[own + 3], now_s, "PX", ttl_ms)
    redis.call("SET", keys[own + 4], "1", "PX", ttl_ms)
  end
  if item_id ~= "" then
    redis.call("SADD", keys[own + 5], item_id)
    if redis.call("PTTL", keys[own + 5]) == -1 then redis.call("PEXPIRE", keys[own + 5], ttl_ms) end
  end
  local sealed = max_items > 0 and size >= max_items
  local closes_ms = sealed and now_ms or math.min(started_ms + window_ms, now_ms + idle_ms)
  redis.call("ZADD", open, string.format("%.0f", closes_ms), id)
  if sealed then redis.call("DEL", current) end
  return id, size, sealed and 1 or 0
end
