#!/usr/bin/env bash
# Builds the Debian package from a binary that is built: target/debian/torana_<version>_<architecture>.deb
#   TORANA_BIN=FILE      the binary; default: target/dist/torana, else target/release/torana
#   DEB_VERSION=…        another version; scripts/deploy-test.sh upgrades to one
#   DEB_FAST=1           compress less, for tests
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
binary=${TORANA_BIN:-target/dist/torana}
[ -n "${TORANA_BIN:-}" ] || [ -x "$binary" ] || binary=target/release/torana
[ -x "$binary" ] || { echo "make deb: $binary is missing: make dist, or cargo build --release" >&2; exit 1; }
scripts/tools.sh deb
export PATH=$PWD/target/tools/bin:$PATH
# cargo-deb dates the package's files by it, so that equal inputs give an equal package.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
. scripts/files.sh
ship_files "$binary" target/deb
cargo deb --quiet --no-build --no-strip --locked ${DEB_VERSION:+--deb-version "$DEB_VERSION"} ${DEB_FAST:+--fast} --output target/debian/
