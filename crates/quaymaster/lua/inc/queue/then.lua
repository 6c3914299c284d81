-- queue/then: what follows from an ack. Each part is kind, how many words, the words; its keys follow those of the part
-- before it, from keys[at] on: seven of a push, fourteen of a batch, none of a publish.

-- How many of the leases in words[from..] are held and live, each counted once, and how many are given.
local function queue_held(held, leases, words, from, now_ms)
  local at, found, given, seen = from, 0, 0, {}
  while at <= #words do
    local count = words[at + 1] + 0
    for _, id in ipairs((queue_ours(held, leases, words[at], words, at + 2, at + 1 + count, now_ms))) do
      if not seen[id] then found = found + 1 end
      seen[id] = true
    end
    at, given = at + 2 + count, given + count
  end
  return found, given
end

-- Where the words after the parts begin, and by part the first number that its jobs get; then, if a part cannot be done,
-- its place, why, and what the batch said.
local function queue_then_check(keys, at, words, from, parts, now_us)
  local refused, why, said, adding, numbers = 0, "", "", {}, {}
  for part = 1, parts do
    local word, x = "fits", ""
    if words[from] == "push" then
      local _
      word, _, _, _, numbers[part] = queue_fits(keys, at, words, from + 2, adding, now_us)
      at = at + 7
    elseif words[from] == "batch" then
      word, x = batch_check(keys, at, words, from + 2, now_us)
      at = at + 14
    end
    if refused == 0 and word ~= "fits" and word ~= "add" and word ~= "new" and word ~= "duplicate" then
      refused, why, said = part, word, x
    end
    from = from + 2 + words[from + 1]
  end
  return from, numbers, refused, why, said
end

-- Adds an item to a batch. A part before this one may have begun the batch that is open now: its own keys are then
-- those of that part's fresh batch, which `begun` knows. Answers the batch, and 1 when it takes no more.
local function queue_then_batch(keys, at, words, from, begun, now_us)
  local word, id = batch_check(keys, at, words, from, now_us)
  local own, given = { unpack(keys, at, at + 13) }, { unpack(words, from, from + 10) }
  if word == "elsewhere" and begun[id] then
    given[1] = id
    for index = 0, 5 do own[3 + index] = keys[begun[id] + index] end
    word = batch_check(own, 1, given, 1, now_us)
  end
  if word == "duplicate" then return given[1], 0 end
  if word ~= "add" then
    word = "new"
    begun[given[2]] = at + 8
  end
  local batch, _, sealed = batch_commit(own, 1, given, 1, now_us, word)
  return batch, sealed
end

-- Does every part but the messages, which it answers as channel, data, and so on; into `reply` how many parts have
-- something to tell, and of each its part, then of a batch whether it takes no more and its id, of a push that dropped
-- items how many and nothing.
local function queue_then_do(keys, at, words, from, parts, numbers, now_us, reply)
  local begun, head, messages = {}, #reply + 1, {}
  reply[head] = 0
  local function tell(part, number, text)
    local last = #reply
    reply[head], reply[last + 1], reply[last + 2], reply[last + 3] = reply[head] + 1, part, number, text
  end
  for part = 1, parts do
    local first = from + 2
    if words[from] == "push" then
      local _, waiting, pushed, stamped, number = queue_fits(keys, at, words, first, {}, now_us, numbers[part])
      local _, _, dropped = queue_add(keys, at, words, first, now_us, waiting, pushed, stamped, number)
      if dropped > 0 then tell(part, dropped, "") end
      at = at + 7
    elseif words[from] == "batch" then
      local id, sealed = queue_then_batch(keys, at, words, first, begun, now_us)
      tell(part, sealed, "=" .. id)
      at = at + 14
    else
      messages[#messages + 1], messages[#messages + 2] = words[first], words[first + 1]
    end
    from = first + words[from + 1]
  end
  return messages
end
