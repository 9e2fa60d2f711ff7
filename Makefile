# Every task of the project. CI runs these targets and nothing else.

SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: help run test check dist bench fuzz hostile parity tools golden pictures image deb release deploy-test

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 13

run: ## build, start the gateway with a second API server behind it, run until Ctrl-C
	@scripts/run.sh

tools: ## install (as root) or list the tools the tests need: kubectl, python3-venv, etcd
	@scripts/tools.sh

test: tools ## all tests: format, lints, docs, unit, property, integration, kubectl, kube-rs, Python client
	@scripts/test.sh

check: ## format, lints, docs and the dependencies' licences and advisories, without tests
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --lib
	@scripts/deny.sh

dist: ## the binary to deploy, target/dist/torana, built with profile-guided optimisation
	@scripts/dist.sh

image: ## an OCI image of that binary (or of a release build), target/image/torana-<version>.tar
	@scripts/image.sh

deb: ## a Debian package of that binary (or of a release build), in target/debian
	@scripts/deb.sh

release: ## reproducible archives with checksums and SBOM for each target whose toolchain is installed
	@scripts/release.sh

deploy-test: ## build image, package and archive; run, install, upgrade and purge them (as root, on Debian)
	@scripts/deploy-test.sh

bench: ## measure that binary, and HAProxy and nginx for comparison (ONLY=… selects scenarios)
	@scripts/bench.sh $(ONLY)

fuzz: ## every fuzz body for FUZZ_SECONDS each (default 30) over generated input, then the complexity fuzzer
	@scripts/fuzz.sh

hostile: ## hostile requests and peers against a release build, with the promised limits
	cargo build -q --release --bin torana
	TORANA_BIN="$(CURDIR)/target/release/torana" cargo test -q --test hostile -- --nocapture

parity: ## replay recorded exchanges with kube-apiserver, if ../shared/parity exists
	@scripts/parity.sh

pictures: ## draw docs/pictures anew from a gateway, a Prometheus and the dashboards
	@scripts/pictures.sh

golden: ## refresh the generated files that are committed
	cargo run -q -p schema-gen
	cargo run -q -- docs-flags > docs/flags.md
	cargo run -q -- docs-config > docs/configuration.md
