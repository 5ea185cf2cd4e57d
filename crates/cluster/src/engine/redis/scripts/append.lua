-- KEYS: and the answer by idempotency key, if there is one.
-- ARGV: and channel, payload, messages at most, bytes at most, ms at most, ms to keep the head at least, ms to keep the answer.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if KEYS[3] then
  -- The answer has the position, the room's first epoch, unless it is that of the position, and the time until which the head lasts
  -- unless the room is lost. Earlier builds stored the position only.
  local answer = redis.call('GET', KEYS[3]) or ''
  if string.match(answer, '^%d+:%d+$') then return answer end
  local position, epoch, first, until_ms = string.match(answer, '^((%d+):%d+):(%d*):(%d+)$')
  if first == '' then first = epoch end
  local is_same = head[1] and first == (head[5] or head[1])
  if position and (is_same or now >= tonumber(until_ms)) then return position end
end
if not head[1] then begin() end
local messages_max, bytes_max, age_max = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local length = redis.call('XLEN', KEYS[2])
local bytes = length > 0 and tonumber(head[4]) or 0
local offset = string.format('%.0f', redis.call('HINCRBY', KEYS[1], 'o', 1))
redis.call('XADD', KEYS[2], offset .. '-0', 't', string.format('%.0f', now), 'd', ARGV[4])
length, bytes = length + 1, bytes + #ARGV[4]
while length > 0 do
  local oldest = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
  if length <= messages_max and bytes <= bytes_max and now - oldest[2][2] <= age_max then break end
  redis.call('XDEL', KEYS[2], oldest[1])
  length, bytes = length - 1, bytes - #oldest[2][4]
end
redis.call('HSET', KEYS[1], 'b', string.format('%.0f', bytes))
keep(ARGV[8])
redis.call('PEXPIRE', KEYS[2], ARGV[7])
local position = head[1] .. ':' .. offset
if KEYS[3] then
  local first = head[5] ~= head[1] and head[5] or ''
  local answer = string.format('%s:%s:%.0f', position, first, now + ARGV[8])
  redis.call('SET', KEYS[3], answer, 'PX', ARGV[9])
end
redis.call('PUBLISH', ARGV[3], position .. ':' .. ARGV[4])
return position
