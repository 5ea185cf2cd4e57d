-- KEYS: nodes. ARGV: node, record, ms to last, which are the same for all nodes.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last_ms = now + ARGV[3]
local function keep(node, record)
  redis.call('HSET', KEYS[1], node, string.format('%.0f', last_ms) .. ':' .. record)
end
keep(ARGV[1], ARGV[2])
local all = redis.call('HGETALL', KEYS[1])
local alive = {}
for i = 1, #all, 2 do
  local until_ms, record = string.match(all[i + 1], '^(%d+):(.*)$')
  if until_ms and tonumber(until_ms) > now then
    -- The server's clock has gone back since the node's heartbeat.
    if tonumber(until_ms) > last_ms then keep(all[i], record) end
    alive[#alive + 1] = all[i]
    alive[#alive + 1] = record
  else
    redis.call('HDEL', KEYS[1], all[i])
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return alive
