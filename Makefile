# The two commands of this project: `make run` starts the demo, `make test` runs every test.
.PHONY: run test setup lint rust-test uring-test delta-test sanitize fuzz-build client-test bench

export PATH := $(CURDIR)/.cache/cargo-deny/bin:$(PATH)

# Two of the transports that the demo's page can use need libraries of others: those of the tests, where they are installed.
DEMO_LIBRARIES = $(if $(wildcard tests/clients/node_modules/sockjs-client),--libraries tests/clients/node_modules)

run:
	cargo run --release --quiet --package stentor -- demo $(DEMO_LIBRARIES)

# The clients mostly wait, and the others mostly compile: they go side by side, each one's output when it has ended.
test: setup lint rust-test uring-test
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target client-test delta-test sanitize fuzz-build

# What the tests need and this machine lacks.
setup:
	scripts/setup-tests

lint:
	cargo fmt --all --check
	cargo clippy --quiet --workspace --all-targets -- -D warnings
	cargo deny --log-level error check bans licenses sources

rust-test:
	cargo test --quiet --workspace

# The data plane's tests over real sockets once more, on io_uring where it works. (Without the variable: epoll.)
uring-test:
	cargo test --quiet --workspace --tests --config 'target."cfg(all())".runner = "scripts/on-io-uring"'

# Other implementations of JSON Patch apply ours.
delta-test:
	tests/delta/run

# The island of unsafe code under AddressSanitizer, which needs a nightly compiler.
sanitize:
	@if cargo +nightly --version >/dev/null 2>&1; then \
	  RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=target/asan \
	    cargo +nightly test --quiet --package stentor-driver --target x86_64-unknown-linux-gnu; \
	else echo "sanitize: skipped, there is no nightly compiler"; fi

# The fuzz targets build, so that they can be run when they are wanted: see fuzz/README.md.
fuzz-build:
	CARGO_TARGET_DIR=target/fuzz cargo build --quiet --manifest-path fuzz/Cargo.toml

# Real clients against the binary that was tested above.
client-test:
	cargo build --quiet --package stentor
	cargo build --quiet --workspace --example conformance
	cd tests/clients && npm test --silent

# Our figures beside the bare loops' and the peers', in the same run: see docs/benchmarks.md.
bench:
	lab/bench
