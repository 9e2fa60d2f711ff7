#!/usr/bin/env bash
# Builds in release mode and measures; HAProxy and nginx run beside it where Debian's packages are installed.
set -euo pipefail
cd "$(dirname "$0")/.."
for p in haproxy nginx; do
	[ -x "/usr/sbin/$p" ] || echo "note: $p is not installed, so there is no ratio to it (apt-get install haproxy nginx-light)" >&2
done
cargo build -q --release --bin torana --example extension-server
cargo build -q --release -p torana-bench
[ $# -gt 0 ] || cargo bench -q --bench objects --bench access
exec target/release/torana-bench run target/release/torana "$@"
