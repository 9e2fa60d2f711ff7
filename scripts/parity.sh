#!/usr/bin/env bash
# Starts a gateway as the parity kit requires, replays the recordings, and compares the result with docs/wire/parity.txt.
#   scripts/parity.sh            every area; fails if an area falls below its promised passes
#   scripts/parity.sh AREA…      only these areas, with all differences
#   scripts/parity.sh --write    every area; rewrites docs/wire/parity.txt
#   BACKEND=etcd                 use a temporary etcd as the store
#   SAMPLE_APISERVER=BINARY      also run Kubernetes' sample-apiserver behind it, for the area "aggregation" (needs etcd)
set -euo pipefail
cd "$(dirname "$0")/.."
kit=${PARITY_KIT:-../shared/parity}
[ -x "$kit/parity" ] || { echo "no parity kit at $kit: skipped"; exit 0; }
bin=${TORANA_BIN:-target/release/torana}
[ -n "${TORANA_BIN:-}" ] || cargo build -q --release
dir=$(mktemp -d)
free() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
store=()
if [ "${BACKEND:-embedded}" = etcd ] || [ -n "${SAMPLE_APISERVER:-}" ]; then
	client=http://127.0.0.1:$(free) peer=http://127.0.0.1:$(free)
	etcd --data-dir="$dir/etcd" --listen-client-urls="$client" --advertise-client-urls="$client" \
		--listen-peer-urls="$peer" --initial-advertise-peer-urls="$peer" --initial-cluster="default=$peer" >"$dir/etcd.log" 2>&1 &
	etcd=$!
	[ "${BACKEND:-embedded}" != etcd ] || store=(--etcd-servers="$client")
fi
"$bin" serve --secure-port=0 --bind-address=127.0.0.1 --data-dir="$dir/data" --token-auth-file="$kit/tokens.csv" \
	--authorization-mode=Node,RBAC --allow-privileged=true --service-cluster-ip-range=10.0.0.0/24 \
	--service-account-issuer=https://kubernetes.default.svc --etcd-compaction-interval=5s "${store[@]}" >"$dir/log" 2>&1 &
pid=$!
trap 'kill $pid ${sample:-} ${etcd:-} 2>/dev/null || true; wait $pid ${sample:-} ${etcd:-} 2>/dev/null || true; cp "$dir/log" target/parity.log; rm -rf "$dir"' EXIT
for _ in $(seq 200); do
	[ -f "$dir/data/admin.kubeconfig" ] && url=$(sed -n 's/.*server: *//p' "$dir/data/admin.kubeconfig" | tr -d '"') &&
		curl -sk "$url/readyz" 2>/dev/null | grep -q '^ok' && break
	kill -0 $pid 2>/dev/null || { cat "$dir/log"; exit 1; }
	sleep 0.05
done
args=(check --server "$url" --ca "$dir/data/pki/ca.crt" --jobs 4 --patience "${PATIENCE:-4}")
if [ -n "${SAMPLE_APISERVER:-}" ]; then
	port=$(free)
	bash "$kit/start-sample.sh" "$url" "$dir/data/pki/ca.crt" admintoken "$client" "$port" "$dir/sample" >"$dir/sample.log" 2>&1 &
	sample=$!
	for _ in $(seq 600); do
		curl -sk "https://127.0.0.1:$port/healthz" 2>/dev/null | grep -q '^ok' && break
		kill -0 $sample 2>/dev/null || { cat "$dir/sample.log"; exit 1; }
		sleep 0.1
	done
	args+=(--sample-port "$port")
fi
mkdir -p target
if [ $# -gt 0 ] && [ "$1" != --write ]; then
	only=()
	for a in "$@"; do only+=(--only "$a"); done
	"$kit/parity" "${args[@]}" "${only[@]}" || true
	exit 0
fi
"$kit/parity" "${args[@]}"  >target/parity.txt 2>&1 || true
inputs=(target/parity.txt docs/wire/parity.txt)
[ -n "${SAMPLE_APISERVER:-}" ] || inputs+=(--without=aggregation)
again=()
if [ $# -eq 0 ] && fallen=$(python3 scripts/parity_check.py fallen "${inputs[@]}") && [ -n "$fallen" ]; then
	echo "running again, one case at a time: $fallen"
	only=()
	for a in $fallen; do only+=(--only "$a/*"); done
	"$kit/parity" "${args[@]}" --jobs 1 --patience 15 "${only[@]}" >target/parity-again.txt 2>&1 || true
	again=(target/parity-again.txt)
fi
python3 scripts/parity_check.py "${1:-check}" "${inputs[@]}" "${again[@]}"
