-- guard: the record and the lock of a guard, which may have either.
--
-- Keys come in this order: the record, if there is one; lock, fence, queue and alive, if there is a lock.
--
-- "free" claim_ms held last | "ours" claim_ms held last, when the token has one of them already, or what the first that
-- says no says. `held` tells whether the record is the token's, `last` is the last fence. Dead waiters stay: whoever
-- waits for the lock drops them.
local function guard_check(keys, token, fp, in_progress_ms, lock_ms, now_us, now_ms)
  local word, claim_ms, claimed, at = "free", 0, false, 0
  if in_progress_ms ~= "0" then
    local said, x, bytes = idempotency_check(keys[1], token, fp, now_ms)
    if said ~= "free" and said ~= "ours" then return said, x, bytes end
    claimed, at = said == "ours", 1
    word, claim_ms = said, claimed and x or in_progress_ms + 0
  end
  local last = 0
  if lock_ms ~= "0" then
    last = lock_fence(keys[at + 2], 8.9999e15)
    local said, left_ms = lock_check(keys[at + 1], keys[at + 3], keys[at + 4], token, now_us)
    if said == "held" then return "held", left_ms end
    if said == "ours" then word = "ours" end
  end
  return word, claim_ms, claimed, last
end

-- Takes what the check found free; answers the fence, 0 without a lock. A guard never waits, so its token stands in no
-- queue.
local function guard_commit(keys, token, fp, in_progress_ms, lock_ms, fence_ttl_ms, claimed, last, now_us, now_ms)
  local fence, at = 0, in_progress_ms ~= "0" and 1 or 0
  if lock_ms ~= "0" then
    fence = lock_commit(keys[at + 1], keys[at + 2], last, nil, nil, token, lock_ms, fence_ttl_ms, now_us)
  end
  if at == 1 and not claimed then idempotency_commit(keys[1], token, fp, in_progress_ms, now_ms) end
  return fence
end
