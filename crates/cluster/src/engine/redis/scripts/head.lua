-- ARGV: and ms to keep a room without messages.
if not head[1] then return false end
if head[2] == '0' then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return head[1] .. ':' .. head[2]
