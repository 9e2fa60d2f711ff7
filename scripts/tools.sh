#!/usr/bin/env bash
# Installs what the tests need from Debian's packages when run as root, and otherwise names it precisely.
set -euo pipefail
missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
need cc gcc
need openssl openssl
need curl curl
need python3 python3
# etcd-client is generated from etcd's protocol when it is built; the tests of that store run Debian's etcd.
need protoc protobuf-compiler
[ -f /usr/include/google/protobuf/descriptor.proto ] || [ -n "${PROTOC_INCLUDE:-}" ] || missing+=(libprotobuf-dev)
need etcd etcd-server
need etcdctl etcd-client
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
if ! command -v kubectl >/dev/null 2>&1; then
	# Debian's kubectl is in kubernetes-client; Google's own repository has it as kubectl.
	if apt-cache show kubectl >/dev/null 2>&1; then missing+=(kubectl); else missing+=(kubernetes-client); fi
fi
if ! command -v cargo >/dev/null 2>&1; then
	echo "cargo is missing: install Rust with https://rustup.rs, then run this again" >&2
	exit 1
fi
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
	echo "missing: ${missing[*]}. As root on Debian: apt-get install -y ${missing[*]}" >&2
	exit 1
fi
echo "installing from Debian's packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get install -y --no-install-recommends "${missing[@]}" >/dev/null 2>&1 || {
	apt-get update >/dev/null
	apt-get install -y --no-install-recommends "${missing[@]}" >/dev/null
}
