# shellcheck shell=bash
# Sourced by deb.sh and release.sh: the files around a binary that both ship.
#   ship_files BINARY DIRECTORY      TOOL is the binary that generates texts; default: BINARY (another one for cross builds)
ship_files() {
	local binary=$1 dir=$2 tool=${TOOL:-$1}
	mkdir -p "$dir"
	"${STRIP:-strip}" -o "$dir/torana" "$binary"
	chmod 755 "$dir/torana"
	"$tool" docs-man | gzip -n -9 >"$dir/torana.1.gz"
	"$tool" completion bash >"$dir/torana.bash"
	"$tool" completion zsh >"$dir/_torana"
	"$tool" completion fish >"$dir/torana.fish"
	scripts/sbom.py cyclonedx --target "${TARGET:-x86_64-unknown-linux-gnu}" >"$dir/torana.cdx.json"
	scripts/sbom.py licenses --target "${TARGET:-x86_64-unknown-linux-gnu}" | gzip -n -9 >"$dir/THIRD-PARTY-LICENSES.gz"
}
