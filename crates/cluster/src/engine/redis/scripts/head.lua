-- ARGV: and ms to keep the head at least.
if not head[1] then return false end
keep(ARGV[3])
return head[1] .. ':' .. head[2]
