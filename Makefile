# The two commands of this project: `make run` starts the demo, `make test` runs every test.
.PHONY: run test

run:
	cargo run --release --quiet --package stentor -- demo

test:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo test --workspace
