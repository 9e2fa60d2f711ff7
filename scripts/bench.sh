#!/usr/bin/env bash
# Builds the deployable binary (make dist) and measures it, with HAProxy and nginx for comparison if they are installed.
#   BUILD=release                measure the plain release build instead: faster to build, slower to run
set -euo pipefail
cd "$(dirname "$0")/.."
for p in haproxy nginx; do
	[ -x "/usr/sbin/$p" ] || echo "note: $p is not installed, so there is no ratio to it (apt-get install haproxy nginx-light)" >&2
done
case ${BUILD:-dist} in
dist) scripts/dist.sh ;;
release) cargo build -q --release --bin torana ;;
*) echo "make bench: BUILD is dist or release, not $BUILD" >&2 && exit 1 ;;
esac
cargo build -q --release --example extension-server
cargo build -q --release -p torana-bench
[ $# -gt 0 ] || cargo bench -q --bench objects --bench access
exec target/release/torana-bench run "target/${BUILD:-dist}/torana" "$@"
