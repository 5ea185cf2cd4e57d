if not head[1] then return false end
return head[1] .. ':' .. head[2]
