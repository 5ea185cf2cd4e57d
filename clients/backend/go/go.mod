module stentor/backend

go 1.21
