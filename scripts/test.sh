#!/usr/bin/env bash
# Runs every check and test. The tests end the processes they start, even when they fail.
set -euo pipefail
cd "$(dirname "$0")/.."
step() { printf '\n== %s (%s free)\n' "$*" "$(df -h --output=avail . | tail -n 1 | tr -d ' ')"; }

step "format"
cargo fmt --all -- --check
step "lints"
cargo clippy --workspace --all-targets -- -D warnings
step "docs"
RUSTDOCFLAGS="-D warnings" cargo doc -q --workspace --no-deps --lib
step "licences and advisories of dependencies"
scripts/deny.sh
step "unit, property, integration and kubectl tests"
cargo build -q --bins --examples
cargo test -q
step "kubectl, with the control loops on"
TORANA_TEST_CONTROLLERS='*' cargo test -q --test kubectl --test custom_resources --test custom_resource_parts \
	--test custom_resource_rules --test conversion --test kubectl_kinds
step "the generator against k8s-openapi"
cargo test -q -p schema-gen
step "kube-rs"
TORANA_BIN="$PWD/target/debug/torana" TORANA_EXAMPLE="$PWD/target/debug/examples/extension-server" cargo test -q -p kube-rs-tests
step "Python: a webhook, and the official client"
scripts/python-client.sh
