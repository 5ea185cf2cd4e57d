-- The start of each script about a room. KEYS: head, stream. ARGV: replication id, an epoch to begin if one is needed.
-- The head has the epoch `e`, the newest offset `o`, the replication id `r`, the stream's size in bytes `b`, and the room's first
-- epoch `f`. A room that was lost and begins anew has another one.
local head = redis.call('HMGET', KEYS[1], 'e', 'o', 'r', 'b', 'f')
local function begin()
  local first = head[5] or ARGV[2]
  redis.call('HSET', KEYS[1], 'e', ARGV[2], 'o', '0', 'r', ARGV[1], 'b', '0', 'f', first)
  redis.call('DEL', KEYS[2])
  head = {ARGV[2], '0', ARGV[1], '0', first}
end
local function keep(ms)
  if redis.call('PTTL', KEYS[1]) < tonumber(ms) then redis.call('PEXPIRE', KEYS[1], ms) end
end
-- Another primary, or this one after a restart: the newest messages may be lost.
if head[1] and head[3] ~= ARGV[1] then begin() end
