#!/usr/bin/env bash
# Checks licences, banned crates, sources and security advisories of all dependencies (deny.toml), if cargo-deny is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v cargo-deny >/dev/null 2>&1; then
	echo "note: dependencies are not checked, because cargo-deny is missing: cargo install --locked cargo-deny" >&2
	exit 0
fi
deny() { cargo deny --workspace --log-level error "$@"; }
deny check --hide-inclusion-graph bans licenses sources
# Advisories need their database, which comes from GitHub. Without a network the last copy is used.
copies=${CARGO_HOME:-$HOME/.cargo}/advisory-dbs
if deny fetch db >/dev/null 2>&1; then
	deny check --hide-inclusion-graph advisories
elif [ -n "$(find "$copies" -mindepth 1 -maxdepth 1 -type d 2>/dev/null)" ]; then
	echo "note: GitHub cannot be reached; advisories are checked against the last copy of their database" >&2
	deny --offline check --hide-inclusion-graph advisories
else
	echo "note: GitHub cannot be reached, and there is no copy of the advisory database: advisories are not checked" >&2
fi
