#!/usr/bin/env bash
# Starts a gateway on https://127.0.0.1:6443 with a second API server behind it, and runs until Ctrl-C.
#   PORT=7443 DATA=/somewhere make run     use another port and another directory
set -euo pipefail
cd "$(dirname "$0")/.."
port=${PORT:-6443}
data=${DATA:-./torana-data}

die() { echo "make run: $*" >&2; exit 1; }
scripts/tools.sh build || exit 1
mkdir -p "$data" 2>/dev/null && [ -w "$data" ] || die "the directory $data is not writable: set DATA=… to another one"

echo "building (a few minutes the first time) …"
cargo build -q --release --bin torana --example extension-server

gateway_log=$data/gateway.log
example_log=$data/example/server.log
mkdir -p "$data/example"
pids=()
stop() {
	trap - EXIT INT TERM
	for ((i = ${#pids[@]} - 1; i >= 0; i--)); do kill -TERM "${pids[i]}" 2>/dev/null || true; done
	for p in "${pids[@]}"; do wait "$p" 2>/dev/null || true; done
}
trap stop EXIT
trap 'stop; echo; echo "stopped"; exit 0' INT TERM

# Job control gives each server its own process group: Ctrl-C reaches only this script, which then stops them in order.
set -m
target/release/torana dev --data-dir="$data" --secure-port="$port" >"$gateway_log" 2>&1 &
pids+=($!)
target/release/examples/extension-server --kubeconfig="$data/admin.kubeconfig" --data-dir="$data/example" --secure-port=0 --register >"$example_log" 2>&1 &
pids+=($!)
set +m

for _ in $(seq 600); do
	grep -q '^READY ' "$example_log" 2>/dev/null && break
	if ! kill -0 "${pids[0]}" 2>/dev/null; then
		echo "the gateway did not start:" >&2
		tail -n 3 "$gateway_log" >&2
		exit 1
	fi
	if ! kill -0 "${pids[1]}" 2>/dev/null; then
		echo "the example server did not start:" >&2
		tail -n 3 "$example_log" >&2
		exit 1
	fi
	sleep 0.1
done
grep -q '^READY ' "$example_log" || die "the aggregated group did not become available within a minute; see $gateway_log and $example_log"

url=$(sed -n 's/.*server: *//p' "$data/admin.kubeconfig" | head -n 1 | tr -d '"')
config=$(cd "$data" && pwd)/admin.kubeconfig
cat <<MSG

gateway          $url   (log: $gateway_log)
second server    $(sed -n 's/^READY //p' "$example_log" | head -n 1)   (log: $example_log)
kubeconfig       $config

things to try:
  export KUBECONFIG=$config
  kubectl get apiservices
  kubectl api-resources
  kubectl apply -f examples/extension-server/gadget.yaml && kubectl get gadgets -o wide
  kubectl get gadgets --watch            # through the gateway, from the second server
  kubectl apply -f examples/custom-resource/definition.yaml && kubectl wait --for=condition=Established crd/websites.example.com
  kubectl apply -f examples/custom-resource/website.yaml && kubectl get websites   # a kind of your own; the file shows what it declares
  kubectl explain website.spec && kubectl scale --replicas=3 website/shop && kubectl get websites.v1beta1.example.com shop -o yaml
  kubectl create configmap hello --from-literal=to=world && kubectl get cm hello -o yaml
  kubectl create namespace demo && kubectl get serviceaccounts,configmaps -n demo && kubectl delete namespace demo

Ctrl-C stops both.
MSG
while kill -0 "${pids[0]}" 2>/dev/null && kill -0 "${pids[1]}" 2>/dev/null; do sleep 0.5; done
echo "a server exited unexpectedly; the last lines of its log:" >&2
kill -0 "${pids[0]}" 2>/dev/null && tail -n 3 "$example_log" >&2 || tail -n 3 "$gateway_log" >&2
exit 1
