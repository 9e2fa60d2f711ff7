#!/usr/bin/env bash
# Profile-guided build: build an instrumented binary, run it under a mixed load, build again with the profile (ADR 8).
#   scripts/dist.sh              writes target/dist/torana; some fifteen minutes on two cores, immediate if nothing changed
#   LLVM_PROFDATA=…              llvm-profdata of the compiler's LLVM version; default: the toolchain's own (rustup's llvm-tools)
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/tools.sh build
host=$(rustc -vV | sed -n 's/^host: //p')
tool=${LLVM_PROFDATA:-$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata}
if [ ! -x "$tool" ] && ! { command -v rustup >/dev/null && rustup component add llvm-tools >/dev/null 2>&1 && [ -x "$tool" ]; }; then
	echo "make dist: $tool is missing: run 'rustup component add llvm-tools', or name one in LLVM_PROFDATA" >&2
	exit 1
fi
target=${CARGO_TARGET_DIR:-target}
out=$target/dist
mkdir -p "$out"
out=$(cd "$out" && pwd)

# With --target, RUSTFLAGS do not apply to build scripts and proc macros, so these are not instrumented.
build() { RUSTFLAGS="${RUSTFLAGS:-} $1" cargo build -q --release --bin torana --target "$host" --target-dir "$out/$2"; }
echo "building the instrumented binary …"
build "-Cprofile-generate=$out/counts" counting
counting=$out/counting/$host/release/torana
if ! [ -f "$out/counted" ] || ! sha256sum -c --status "$out/counted"; then
	echo "recording a profile …"
	cargo build -q --release -p torana-bench
	rm -rf "$out/counts" "$out"/*.profdata
	"$target/release/torana-bench" train "$counting"
	"$tool" merge -o "$out/new" "$out"/counts/*.profraw
	# The file is named by its content, so cargo rebuilds when the profile changes.
	mv "$out/new" "$out/$(sha256sum "$out/new" | cut -c1-16).profdata"
	sha256sum "$counting" >"$out/counted"
fi
echo "building with the profile …"
build "-Cprofile-use=$(echo "$out"/*.profdata) -Cllvm-args=-pgo-warn-missing-function=false" guided
cp "$out/guided/$host/release/torana" "$out/torana.new"
mv "$out/torana.new" "$out/torana"
echo "$target/dist/torana"
