-- queue/record: what is known of a job that was claimed or delayed.

-- The parts of a record; one that is missing or somebody else's counts as never tried. An attempt has nine digits at
-- most, and a priority is a number that can be compared.
local function queue_record(record)
  local token, attempt, failed_ms, worker, score = string.match(record or "", "^(%S+) (%d+) (%d+) (%S+) (%S+)$")
  local tried, priority = number_read(attempt), tonumber(score)
  if not tried or tried > 999999999 or not number_read(failed_ms) or not priority or priority ~= priority then
    return token or "-", 0, "0", "-", "0"
  end
  return token, tried, failed_ms, worker, score
end

-- When a lease ended, by its score: never in the future, and a moment that a clock has shown.
local function queue_ended(score, now_ms)
  local ended = tonumber(score) or 0
  if ended ~= ended or ended < 0 or ended > now_ms then ended = now_ms end
  return string.format("%.0f", ended)
end
