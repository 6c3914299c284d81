-- queue/then: what follows from an ack. Each part is kind, how many words, the words; its keys follow those of the part
-- before it, from keys[at] on.

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

-- Where the words after the parts begin, and the number of the first part that has no room, 0 when all have.
local function queue_then_check(keys, at, words, from, parts)
  local refused, adding = 0, {}
  for part = 1, parts do
    if words[from] == "push" then
      local word = queue_fits(keys, at, words, from + 2, adding)
      if word == "full" and refused == 0 then refused = part end
      at = at + 7
    end
    from = from + 2 + words[from + 1]
  end
  return from, refused
end

local function queue_then_do(keys, at, words, from, parts, now_us)
  for _ = 1, parts do
    local first = from + 2
    if words[from] == "push" then
      local _, waiting, pushed, stamped, sequence = queue_fits(keys, at, words, first, {})
      queue_add(keys, at, words, first, now_us, waiting, pushed, stamped, sequence)
      at = at + 7
    elseif words[from] == "publish" then
      redis.call("PUBLISH", words[first], words[first + 1])
    end
    from = first + words[from + 1]
  end
end
