-- queue/progress: how far a call of many steps has come, kept for a repeated request_id: `moved total left full done`.
-- A call that comes again goes on where the first one was interrupted, or gets its answer when that was done.
-- `kept` is what `replay_read` found before anything was moved.
local function queue_progress(request, op, keep_ms, kept, moved)
  local total = (kept and tonumber(kept[2]) or 0) + moved
  replay_keep_all(request, op, keep_ms, { "moved", total, 0, 0, 0 })
end
