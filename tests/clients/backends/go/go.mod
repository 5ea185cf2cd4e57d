module stentor/tests/backend

go 1.21

require stentor/backend v0.0.0

replace stentor/backend => ../../../../clients/backend/go
