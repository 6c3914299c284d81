-- clock: the store's time, the only clock a script believes; read before the first write.
--
-- Past 8.999e15, in the year 2255, microseconds soon stop being whole numbers for Lua: the script ends, and the engines
-- answer `store.clock`.
local function clock_us()
  local time = redis.call("TIME")
  local micros = time[1] * 1000000 + time[2]
  if micros > 8999000000000000 then error("CLOCK " .. string.format("%.0f", micros), 0) end
  return micros
end
