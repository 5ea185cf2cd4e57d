module stentor/examples/hooks

go 1.21

require stentor/backend v0.0.0

// Until its first release.
replace stentor/backend => ../../../clients/backend/go
