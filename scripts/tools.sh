#!/usr/bin/env bash
# Installs the tools that builds and tests need: from Debian's packages when run as root, otherwise it lists what is missing.
#   scripts/tools.sh build      only the tools that building needs
set -euo pipefail
missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
need cc gcc
[ -n "${PROTOC:-}" ] || need protoc protobuf-compiler
# etcd-client's build script compiles etcd's protocol definitions, which import protobuf's well-known types.
[ -f /usr/include/google/protobuf/descriptor.proto ] || [ -n "${PROTOC_INCLUDE:-}" ] || missing+=(libprotobuf-dev)
if [ "${1:-}" != build ]; then
	need openssl openssl
	need curl curl
	need python3 python3
	need etcd etcd-server
	need etcdctl etcd-client
	python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
	if ! command -v kubectl >/dev/null 2>&1; then
		# Debian ships kubectl in kubernetes-client, Google's package repository as kubectl.
		if apt-cache show kubectl >/dev/null 2>&1; then missing+=(kubectl); else missing+=(kubernetes-client); fi
	fi
fi
if ! command -v cargo >/dev/null 2>&1; then
	echo "cargo is missing: install Rust with https://rustup.rs, then run this again" >&2
	exit 1
fi
# promtool checks deploy/observe. Debian ships it with the server, which would start when installed; only the tool is wanted.
wants_promtool() { [ "${1:-}" != build ] && ! command -v promtool >/dev/null 2>&1; }
install_promtool() {
	local dir
	dir=$(mktemp -d)
	(cd "$dir" && { apt-get download -q prometheus || { apt-get update && apt-get download -q prometheus; }; } && dpkg-deb -x prometheus_*.deb . &&
		install -m 755 usr/bin/promtool /usr/local/bin/promtool) >/dev/null 2>&1 || echo "promtool could not be installed" >&2
	rm -rf "$dir"
}
is_debian_root() { [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; }
if wants_promtool "${1:-}" && is_debian_root; then install_promtool; fi
[ ${#missing[@]} -eq 0 ] && exit 0
if ! is_debian_root; then
	echo "missing: ${missing[*]}. As root on Debian: apt-get install -y ${missing[*]}" >&2
	exit 1
fi
echo "installing from Debian's packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get install -y --no-install-recommends "${missing[@]}" >/dev/null 2>&1 || {
	apt-get update >/dev/null
	apt-get install -y --no-install-recommends "${missing[@]}" >/dev/null
}
