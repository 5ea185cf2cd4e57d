-- KEYS: nodes. ARGV: node, record, ms to last.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now + ARGV[3]) .. ':' .. ARGV[2])
local all = redis.call('HGETALL', KEYS[1])
local alive = {}
for i = 1, #all, 2 do
  local until_ms, record = string.match(all[i + 1], '^(%d+):(.*)$')
  if until_ms and tonumber(until_ms) > now then
    alive[#alive + 1] = all[i]
    alive[#alive + 1] = record
  else
    redis.call('HDEL', KEYS[1], all[i])
  end
end
return alive
