-- ARGV: and epoch, offset, messages at most, ms to keep the head at least, ms that a message lasts.
-- A server without memory for it still answers.
if not head[1] and not pcall(begin) then return false end
keep(ARGV[6])
local time = redis.call('TIME')
local oldest = time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(ARGV[7])
local is_same = head[1] == ARGV[3] and tonumber(ARGV[4]) <= tonumber(head[2])
local first = is_same and string.format('%.0f-0', ARGV[4] + 1) or '-'
-- A reply has 16 MiB, or one message. Readers go on behind its last message.
local messages, size = {}, 0
repeat
  local read = redis.call('XRANGE', KEYS[2], first, '+', 'COUNT', ARGV[5]) or {}
  for _, message in ipairs(read) do
    if tonumber(message[2][2]) >= oldest then
      size = size + #message[2][4]
      if size > 16777216 and #messages > 0 then break end
      messages[#messages + 1] = message
    end
  end
  -- The next part, if all of this one has expired.
  first = #read > 0 and '(' .. read[#read][1]
until #messages > 0 or not first
return {head[1], head[2], is_same and 1 or 0, messages}
