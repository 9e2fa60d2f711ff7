#!/usr/bin/env bash
# Runs every fuzz body for FUZZ_SECONDS each: coverage-guided with cargo-fuzz and a nightly toolchain, otherwise by mutation.
# Then runs the complexity fuzzer for ten times as long (COMPLEXITY_SECONDS): every field of every kind, in every way it can be
# sent.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-30}
if command -v cargo-fuzz >/dev/null 2>&1 && rustup toolchain list 2>/dev/null | grep -q '^nightly'; then
	for target in $(sed -n 's/^name = "\(.*\)"$/\1/p' fuzz/Cargo.toml | grep -v '^torana-fuzz$'); do
		echo "== $target"
		cargo +nightly fuzz run "$target" -- -max_total_time="$seconds"
	done
else
	FUZZ_SECONDS=$seconds cargo test --release --test fuzz -- --nocapture
fi
FUZZ_SECONDS=${COMPLEXITY_SECONDS:-$((seconds * 10))} cargo test --release --test complexity -- --nocapture
