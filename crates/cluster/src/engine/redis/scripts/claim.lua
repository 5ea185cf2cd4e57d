-- KEYS: claim. ARGV: node, ms to last (0: it is given up).
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return owner end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
  return false
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
