-- ARGV: and the epoch that ends.
if head[1] == ARGV[3] then begin() end
return 1
