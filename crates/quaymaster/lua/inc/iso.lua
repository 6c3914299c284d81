-- iso: a moment as the documents write it, `2024-09-17T14:35:22.456789`: UTC, microseconds, no zone.
local function iso_text(us)
  local second = math.floor(us / 1000000)
  local day = math.floor(second / 86400)
  -- Days since the first of March of the year 0, so that leap days come last.
  local shifted = day + 719468
  local era = math.floor(shifted / 146097)
  local of_era = shifted - era * 146097
  local year = math.floor(
    (of_era - math.floor(of_era / 1460) + math.floor(of_era / 36524) - math.floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local month = math.floor((5 * of_year + 2) / 153)
  local date = of_year - math.floor((153 * month + 2) / 5) + 1
  month = month < 10 and month + 3 or month - 9
  year = year + era * 400 + (month <= 2 and 1 or 0)
  local left = second - day * 86400
  return string.format("%04d-%02d-%02dT%02d:%02d:%02d.%06d", year, month, date, math.floor(left / 3600),
    math.floor(left / 60) % 60, left % 60, us - second * 1000000)
end
