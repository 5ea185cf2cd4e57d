-- ARGV: and epoch, offset, messages at most, ms to keep a room without messages.
-- A server without memory for it still answers.
if not head[1] and not pcall(begin) then return false end
if head[2] == '0' then redis.call('PEXPIRE', KEYS[1], ARGV[6]) end
local is_same = head[1] == ARGV[3] and tonumber(ARGV[4]) <= tonumber(head[2])
local first = is_same and string.format('%.0f-0', ARGV[4] + 1) or '-'
-- A reply has 16 MiB, or one message. Readers go on behind its last message.
local entries, size = redis.call('XRANGE', KEYS[2], first, '+', 'COUNT', ARGV[5]), 0
for index, entry in ipairs(entries or {}) do
  size = size + #entry[2][4]
  if size > 16777216 and index > 1 then
    for last = #entries, index, -1 do entries[last] = nil end
    break
  end
end
return {head[1], head[2], is_same and 1 or 0, entries}
