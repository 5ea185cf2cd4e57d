module stentor/tests/clients/foreign

go 1.18

require (
	github.com/r3labs/sse/v2 v2.10.0
	gopkg.in/cenkalti/backoff.v1 v1.1.0
)

require golang.org/x/net v0.0.0-20191116160921-f9c825593386 // indirect
