-- upload/due: chunks that may be claimed now, `count` at most; and members of `todo` that are no chunk that waits.
--
-- A chunk that may be claimed in a week or later is due too: no lease or delay is so long, so another program or a clock
-- that was wrong has put it there.
local function upload_due(own, now_ms, count)
  local due, odd = {}, {}
  local far = string.format("(%.0f", now_ms + 604800000)
  for _, range in ipairs({ { "-inf", string.format("%.0f", now_ms) }, { far, "+inf" } }) do
    for _, number in ipairs(redis.call("ZRANGEBYSCORE", own[5], range[1], range[2], "LIMIT", 0, count)) do
      if not number_read(number) or redis.call("GETRANGE", own[4], number, number) ~= "r" then
        odd[#odd + 1] = number
      elseif #due < count then
        due[#due + 1] = number
      end
    end
  end
  return due, odd
end
