-- KEYS: lease, feed (its term `t`), log.
-- ARGV: token, term seen, ms to last, ms to keep the feed, ms to keep it while it has no log.
local held = redis.call('GET', KEYS[1])
if held and tonumber(string.match(held, '^%d+')) >= tonumber(ARGV[2]) then return false end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local kept = tonumber(redis.call('HGET', KEYS[2], 't') or 0)
local term = string.format('%.0f', math.max(now, ARGV[2] + 1, kept + 1))
redis.call('HSET', KEYS[2], 't', term)
local has_log = redis.call('EXISTS', KEYS[3]) == 1
redis.call('PEXPIRE', KEYS[2], has_log and ARGV[4] or ARGV[5])
redis.call('SET', KEYS[1], term .. ':' .. ARGV[1], 'PX', ARGV[3])
return term .. ':' .. ARGV[1]
