# The only spelling of run, test, check, dist, bench and fuzz. CI calls nothing else.

SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: help run test check dist bench fuzz hostile parity tools golden

help: ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

run: ## build, start the gateway and a second API server behind it, stay up until Ctrl-C
	@scripts/run.sh

tools: ## install (as root) or name what tests need: kubectl, python3-venv, etcd
	@scripts/tools.sh

test: tools ## everything: format, lints, docs, unit, property, integration, kubectl, kube-rs, Python client
	@scripts/test.sh

check: ## format, lints and docs, without tests
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --lib

dist: ## the binary to deploy, target/dist/torana: optimised by what a build that counts sees under load
	@scripts/dist.sh

bench: ## measure that binary beside HAProxy and nginx in one run
	@scripts/bench.sh $(ONLY)

fuzz: ## every fuzz body for FUZZ_SECONDS each (default 30) over generated input, then the complexity fuzzer
	@scripts/fuzz.sh

hostile: ## hostile requests and peers against a release build, with the limits that are promised
	cargo build -q --release --bin torana
	TORANA_BIN="$(CURDIR)/target/release/torana" cargo test -q --test hostile -- --nocapture

parity: ## recorded exchanges with kube-apiserver, where ../shared/parity exists
	@scripts/parity.sh

golden: ## refresh what is generated and committed
	cargo run -q -p schema-gen
	cargo run -q -- docs-flags > docs/flags.md
