-- KEYS: lease, feed, log. ARGV: lease, ms to last (0: it ends), ms to keep the feed, ms to keep it while it has no log.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if redis.call('PEXPIRE', KEYS[3], ARGV[3]) == 1 then
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
else
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
end
return 1
