#!/usr/bin/env bash
# Draws docs/pictures/*.svg anew: a gateway with two extension servers, one of which stops, under a small load, watched by a
# Prometheus. Needs kubectl, curl, python3 and prometheus (make tools).
#   TORANA_BIN=FILE EXAMPLE_BIN=FILE     the programs; default: a release build
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${SECONDS_SHOWN:-90}
if [ -z "${TORANA_BIN:-}" ] || [ -z "${EXAMPLE_BIN:-}" ]; then
	cargo build -q --release --bin torana --example extension-server
fi
torana=${TORANA_BIN:-target/release/torana}
example=${EXAMPLE_BIN:-target/release/examples/extension-server}
work=$(mktemp -d)
pids=()
finish() {
	for ((i = ${#pids[@]} - 1; i >= 0; i--)); do kill "${pids[i]}" 2>/dev/null || true; done
	wait
	rm -rf "$work"
}
trap finish EXIT
until_true() { for _ in $(seq 600); do if "$@" >/dev/null 2>&1; then return; fi; sleep 0.1; done; echo "timed out: $*" >&2; exit 1; }

"$torana" serve --controllers='*' --secure-port=0 --bind-address=127.0.0.1 --data-dir="$work/data" >"$work/log" 2>&1 &
pids+=("$!")
export KUBECONFIG=$work/data/admin.kubeconfig
until_true "$torana" health
"$example" --kubeconfig="$KUBECONFIG" --data-dir="$work/example" --secure-port=0 --register >"$work/example.log" 2>&1 &
pids+=("$!")
until_true grep -q '^READY ' "$work/example.log"
# A backend whose process does not run.
kubectl apply -f - >/dev/null <<'YAML'
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: monitoring}}
- {apiVersion: v1, kind: Service, metadata: {name: metrics-adapter, namespace: monitoring}, spec: {type: ExternalName, externalName: localhost, ports: [{port: 1}]}}
- apiVersion: apiregistration.k8s.io/v1
  kind: APIService
  metadata: {name: v1beta1.custom.metrics.k8s.io}
  spec: {group: custom.metrics.k8s.io, version: v1beta1, groupPriorityMinimum: 100, versionPriority: 1, insecureSkipTLSVerify: true, service: {namespace: monitoring, name: metrics-adapter, port: 1}}
YAML
url=$(sed -n 's/.*server: *//p' "$KUBECONFIG" | tr -d '"')
pki=$work/data/pki
admin=(curl -sS --cacert "$pki/ca.crt" --cert "$pki/admin.crt" --key "$pki/admin.key")
cat >"$work/prometheus.yaml" <<YAML
global: {scrape_interval: 1s}
scrape_configs:
- job_name: torana
  scheme: https
  tls_config: {ca_file: $pki/ca.crt, cert_file: $pki/admin.crt, key_file: $pki/admin.key}
  static_configs: [{targets: ['${url#https://}']}]
  relabel_configs: [{target_label: instance, replacement: gateway-0}]
YAML
prometheus --config.file="$work/prometheus.yaml" --storage.tsdb.path="$work/tsdb" --web.listen-address=127.0.0.1:0 >"$work/prometheus.log" 2>&1 &
pids+=("$!")
listens() { prometheus=http://$(sed -n 's/.*msg="Listening on" address=//p' "$work/prometheus.log" | head -n 1) && [ "$prometheus" != http:// ]; }
until_true listens

# Reads of both kinds on one connection each, writes, watches, and some requests that fail.
kubectl apply -f examples/extension-server/gadget.yaml >/dev/null
kubectl get configmaps -A --watch >/dev/null 2>&1 & pids+=("$!")
kubectl get gadgets -A --watch >/dev/null 2>&1 & pids+=("$!")
until=$((SECONDS + seconds))
requests=()
for n in $(seq 40); do
	for path in /api/v1/configmaps /apis/gadgets.example.com/v1/gadgets "/api/v1/namespaces/default/configmaps/picture-$((n % 7))"; do
		requests+=(-o /dev/null "$url$path")
	done
done
n=0
while [ "$SECONDS" -lt "$until" ]; do
	"${admin[@]}" "${requests[@]}"
	n=$((n + 1))
	kubectl create configmap "picture-$n" --from-literal=n=$n >/dev/null
	[ $((n % 5)) -ne 0 ] || "${admin[@]}" -o /dev/null "$url/apis/custom.metrics.k8s.io/v1beta1"
done

out=docs/pictures
mkdir -p "$out"
# Addresses and times of this run say nothing to a reader, but are real: they stay.
"$torana" status | scripts/pictures.py terminal "torana status" >"$out/status.svg"
"${admin[@]}" -H 'Accept: text/html' "$url/debug/aggregator" | scripts/pictures.py page "https://gateway:6443/debug/aggregator" >"$out/page.svg"
for board in deploy/observe/dashboards/*.json; do
	scripts/pictures.py dashboard "$board" "$prometheus" "$seconds" >"$out/dashboard-$(basename "$board" .json).svg"
done
ls "$out"
