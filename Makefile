# The commands of this project: `make run` starts the demo, `make run-cluster` three nodes of it, `make check` runs the quick
# tests, `make test` runs every test.
.PHONY: run build run-cluster check test package setup setup-clients clippy lint programs rust-test delta-test sanitize fuzz-build package-test client-test live-fuzz attack bench-cluster bench

# `make run PORT=9000` sets the demo's port. The admin port is the next one, unless ADMIN_PORT is set.
PORT ?= 8000
ADMIN_PORT ?= $(shell expr $(PORT) + 1)

# Client libraries for two transports of the demo page. The demo also works without them.
DEMO_LIBRARIES = examples/demo-libraries/node_modules

# The server without engines of a cluster, unoptimized: what is quick to build. Packages have the engines and are optimized.
build:
	@scripts/check-rust
	@echo "Building Stentor: about 80 s on two cores the first time, a few seconds after a change"
	@$(CARGO) build --profile demo --package stentor --no-default-features

run: build
	@scripts/install-demo-libraries
	@if [ -d $(DEMO_LIBRARIES) ]; then set -- --libraries $(DEMO_LIBRARIES); fi; \
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

# Builds the archive, the .deb, the npm tarball and the container image in target/package: see docs/deploy/README.md.
package:
	scripts/package

# Cargo uses all cores, independently of make's jobs.
OWN_JOBS = env -u MAKEFLAGS -u MFLAGS
CARGO = $(OWN_JOBS) cargo

# What only compiles gives way to tests, which mostly wait.
NICE = nice -n 10

# The tests' dependencies are installed while Rust compiles. Then the longest tests begin first. What each target prints appears
# when it has ended.
test:
	@scripts/setup-tests system
	@$(MAKE) --no-print-directory --output-sync=target --jobs=2 setup-clients lint programs
	@$(MAKE) --no-print-directory --output-sync=target --jobs=3 client-test rust-test package-test live-fuzz sanitize fuzz-build delta-test

# The inner loop: unit tests and simulations, under two minutes after a change to one crate.
check: clippy
	$(CARGO) test --quiet --workspace --lib --bins --test edge --test wire

# Installs missing dependencies of the tests.
setup:
	scripts/setup-tests

setup-clients:
	scripts/setup-tests clients

clippy:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --quiet --workspace --all-targets -- -D warnings

lint: clippy
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --quiet --workspace --no-deps --document-private-items
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny --log-level error check bans licenses sources; \
	  else scripts/check-dependencies; fi

# All programs of the workspace, and its tests. Built as one: a package that is chosen by name would be built once more, upon
# dependencies with fewer features.
programs:
	$(CARGO) build --quiet --workspace --bins --examples --tests

rust-test: programs
	$(OWN_JOBS) scripts/run-tests

# Other implementations of JSON Patch apply ours.
delta-test: programs
	$(OWN_JOBS) tests/delta/run

# The island of unsafe code under AddressSanitizer, which needs a nightly compiler.
sanitize:
	@if $(CARGO) +nightly --version >/dev/null 2>&1; then \
	  RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=target/asan \
	    $(NICE) $(CARGO) +nightly test --quiet --package stentor-driver --target x86_64-unknown-linux-gnu; \
	else echo "sanitize: skipped, there is no nightly compiler"; fi

# Builds the fuzz targets. To run them, see fuzz/README.md.
fuzz-build:
	CARGO_TARGET_DIR=target/fuzz $(NICE) $(CARGO) build --quiet --manifest-path fuzz/Cargo.toml

# The packages as their users install them, with binaries that are quicker to build, and the Kubernetes manifests.
package-test: export PACKAGE_PROFILE = demo
package-test: export PACKAGE_OUTPUT = $(abspath $(or $(CARGO_TARGET_DIR),target)/package-test)
package-test: export CARGO_PROFILE_DEMO_OPT_LEVEL = 0
package-test: programs
	@$(NICE) scripts/package >/dev/null; status=$$?; \
	  case $$status in 0) tests=tests/package ;; 77) tests=tests/package/kubernetes.test.mjs ;; *) exit $$status ;; esac; \
	  node --test --test-timeout=300000 $$tests

# Real clients against the binary.
client-test: programs
	cd tests/clients && npm test --silent

# Mutated sessions of all protocols, 30 s on each driver: see docs/attacks.md.
FUZZ_SECONDS = 30
live-fuzz: programs
	target/debug/stentor-attack fuzz --binary target/debug/stentor --seconds $(FUZZ_SECONDS) --seed 1

# The attacks one by one, with a table of the measurements: see docs/attacks.md.
attack:
	$(CARGO) build --release --quiet --package stentor --package stentor-attack
	target/release/stentor-attack table

# The cases of several nodes alone. They need redis-server: see docs/cluster.md.
bench-cluster:
	lab/bench --cases cluster-fanout,cluster-latency,cluster-feed

# Compares Stentor with bare loops and other servers in the same run: see docs/benchmarks.md.
bench:
	lab/bench
