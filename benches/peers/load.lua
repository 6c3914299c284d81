-- wrk: one request per caller, prepared before the clock starts. REQUESTS names a file with one
-- "METHOD PATH BODY" per line; prints one JSON object.
local requests = {}
for line in io.lines(os.getenv("REQUESTS")) do
  local method, path, body = line:match("^(%S+) (%S+) ?(.*)$")
  local headers = body ~= "" and { ["Content-Type"] = "application/json" } or nil
  requests[#requests + 1] = { method, path, headers, body ~= "" and body or nil }
end

-- wrk.format needs the host, which is known once a thread is initialised.
function init()
  for i, r in ipairs(requests) do requests[i] = wrk.format(r[1], r[2], r[3], r[4]) end
end

local at = 0
function request()
  at = at % #requests + 1
  return requests[at]
end

function done(summary, latency)
  local errors = summary.errors
  local bad = errors.status + errors.connect + errors.read + errors.write + errors.timeout
  local ms = function(p) return latency:percentile(p) / 1e3 end
  print(string.format('{"n":%d,"seconds":%.6f,"p50_ms":%.3f,"p95_ms":%.3f,"p99_ms":%.3f,"bad":%d}',
    summary.requests, summary.duration / 1e6, ms(50), ms(95), ms(99), bad))
end
