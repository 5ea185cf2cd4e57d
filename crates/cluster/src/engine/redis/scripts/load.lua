-- KEYS: feed, log. ARGV: replication id. Whether versions may be missing, and the log.
local is_other = redis.call('HGET', KEYS[1], 'r') ~= ARGV[1]
return {is_other and 1 or 0, redis.call('LRANGE', KEYS[2], 0, -1)}
