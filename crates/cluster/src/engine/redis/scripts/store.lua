-- KEYS: lease, feed (the size of its log in bytes `b`, and the replication id `r` of the primary where it began), log.
-- ARGV: replication id, lease, term, position, channel, change, ms to keep the feed, changes at most, their bytes at most,
-- and the base, if the log begins with it.
if redis.call('GET', KEYS[1]) ~= ARGV[2] then return 'fenced' end
local entry = ARGV[3] .. ':' .. ARGV[4] .. ':'
if ARGV[10] then
  redis.call('HSET', KEYS[2], 'b', '0', 'r', ARGV[1])
  redis.call('DEL', KEYS[3])
  redis.call('RPUSH', KEYS[3], entry .. ARGV[10])
else
  local length = redis.call('LLEN', KEYS[3])
  local feed = redis.call('HMGET', KEYS[2], 'b', 'r')
  local bytes = (feed[1] or 0) + #ARGV[6]
  if length == 0 then return 'empty' end
  if feed[2] ~= ARGV[1] then return 'moved' end
  if length > tonumber(ARGV[8]) or bytes > tonumber(ARGV[9]) then return 'full' end
  redis.call('HSET', KEYS[2], 'b', string.format('%.0f', bytes))
  redis.call('RPUSH', KEYS[3], entry .. ARGV[6])
end
redis.call('PEXPIRE', KEYS[2], ARGV[7])
redis.call('PEXPIRE', KEYS[3], ARGV[7])
redis.call('PUBLISH', ARGV[5], ARGV[4] .. ':' .. ARGV[6])
return 'stored'
