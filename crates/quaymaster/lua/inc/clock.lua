-- clock: the store's time, the only clock a script believes.
local function clock_us()
  local time = redis.call("TIME")
  return time[1] * 1000000 + time[2]
end
