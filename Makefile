# The commands of this project: `make run` starts the demo, `make run-cluster` three nodes of it, `make check` runs what a change to one
# crate needs, `make test` what CI runs, `make test-all` the rest.
.PHONY: run build run-cluster docs package test test-all check counts live-fuzz attack bench-cluster bench

# `make run PORT=9000` sets the demo's port. The admin port is the next one, unless ADMIN_PORT is set.
PORT ?= 8000
ADMIN_PORT ?= $(shell expr $(PORT) + 1)

# Client libraries for two transports of the demo page, and the packages of its worker. The demo also works without them.
DEMO_LIBRARIES = examples/demo-libraries/node_modules

# The server without engines of a cluster, unoptimized: what is quick to build. Packages have the engines and are optimized.
build:
	@scripts/check-rust
	@echo "Building Stentor: about 80 s on two cores the first time, a few seconds after a change"
	@$(CARGO) build --profile demo --package stentor --no-default-features

run: build
	@scripts/install-demo-libraries
	@if [ -d $(DEMO_LIBRARIES) ]; then set -- --libraries $(DEMO_LIBRARIES); fi; \
	  if [ -e $${CARGO_TARGET_DIR:-target}/docs/index.html ]; then set -- "$$@" --docs $${CARGO_TARGET_DIR:-target}/docs; fi; \
	  exec $${CARGO_TARGET_DIR:-target}/demo/stentor demo --listen 127.0.0.1:$(PORT) --admin 127.0.0.1:$(ADMIN_PORT) "$$@"

# The demo as a cluster: three nodes on an engine, behind HAProxy. ENGINE is redis or nats; without PORT, a free one.
ENGINE ?= redis
CLUSTER_PORT = $(if $(filter-out file,$(origin PORT)),--port $(PORT))

run-cluster:
	@scripts/check-rust
	@echo "Building Stentor with its engines: about 2 minutes on two cores the first time, a few seconds after a change"
	@$(CARGO) build --profile demo --package stentor
	@scripts/install-demo-libraries
	@if [ -d $(DEMO_LIBRARIES) ]; then set -- --libraries $(DEMO_LIBRARIES); fi; \
	  exec scripts/run-cluster --engine $(ENGINE) $(CLUSTER_PORT) "$$@" $${CARGO_TARGET_DIR:-target}/demo/stentor

# Builds the pages of the documentation, with a search, in target/docs: about 30 s. The demo then serves them.
docs:
	scripts/docs

# Builds the archive, the .deb, the packages for npm and PyPI and the container image in target/package: see docs/deploy/README.md.
package:
	scripts/package

# Cargo uses all cores, independently of make's jobs.
OWN_JOBS = env -u MAKEFLAGS -u MFLAGS
CARGO = $(OWN_JOBS) cargo

# Format, lints, deterministic tests, and each real thing once: about 8 minutes on two cores.
test:
	@$(OWN_JOBS) scripts/run-tests test

# The rest: other clients and languages, all browsers, failovers, chaos, packages, sanitizer, fuzz, lab. A missing tool is a failure, unless
# SKIP names it or its part: make test-all SKIP=packages,kubernetes
test-all:
	@SKIP=$(SKIP) $(OWN_JOBS) scripts/run-tests all

# Compares instructions, system calls and allocations per message, delivery, connection and version with scripts/counts.toml. A part of `make test-all`.
# The profile is optimized, but without link-time optimization: it builds in half of a release's time.
counts:
	@$(CARGO) build --profile counts --package stentor
	@scripts/count-instructions --check scripts/counts.toml $${CARGO_TARGET_DIR:-target}/counts/stentor

# The inner loop: format, lints, and the Rust tests of the crates that have changed.
check:
	@$(OWN_JOBS) scripts/check

# Mutated sessions of all protocols, 30 s on each driver: see docs/attacks.md.
FUZZ_SECONDS = 30
live-fuzz:
	$(CARGO) build --quiet --package stentor --package stentor-attack
	target/debug/stentor-attack fuzz --binary target/debug/stentor --seconds $(FUZZ_SECONDS) --seed 1

# The attacks one by one, with a table of the measurements: see docs/attacks.md.
attack:
	$(CARGO) build --release --quiet --package stentor --package stentor-attack
	target/release/stentor-attack table

# The cases of several nodes alone. They need redis-server: see docs/cluster.md.
bench-cluster:
	lab/bench --cases cluster-fanout,cluster-latency,cluster-rate,cluster-rate-10k,cluster-feed

# Compares Stentor with bare loops and other servers in the same run: see docs/benchmarks.md.
bench:
	lab/bench
