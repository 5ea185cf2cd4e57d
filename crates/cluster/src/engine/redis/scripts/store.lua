-- KEYS: lease, feed, log. ARGV: lease, term, position, channel, change, ms to keep the feed, changes at most, their bytes at most,
-- and the base, if the log begins with it.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 'fenced' end
local entry = ARGV[2] .. ':' .. ARGV[3] .. ':'
if ARGV[9] then
  redis.call('HSET', KEYS[2], 'b', '0')
  redis.call('DEL', KEYS[3])
  redis.call('RPUSH', KEYS[3], entry .. ARGV[9])
else
  local length = redis.call('LLEN', KEYS[3])
  local bytes = (redis.call('HGET', KEYS[2], 'b') or 0) + #ARGV[5]
  if length == 0 then return 'empty' end
  if length > tonumber(ARGV[7]) or bytes > tonumber(ARGV[8]) then return 'full' end
  redis.call('HSET', KEYS[2], 'b', string.format('%.0f', bytes))
  redis.call('RPUSH', KEYS[3], entry .. ARGV[5])
end
redis.call('PEXPIRE', KEYS[2], ARGV[6])
redis.call('PEXPIRE', KEYS[3], ARGV[6])
redis.call('PUBLISH', ARGV[4], ARGV[3] .. ':' .. ARGV[5])
return 'stored'
