#!/usr/bin/env bash
# Runs tests/python, whose programs start gateways of their own: a webhook server with the standard library, the definitions that
# packages of PyPI ship, and the official Python client.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 tests/python/test_webhooks.py target/debug/torana
venv=target/python-venv
if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import kubernetes' 2>/dev/null; then
	python3 -m venv "$venv"
	"$venv/bin/pip" install -q --disable-pip-version-check 'kubernetes==36.0.3'
fi
# The wheels are read, not installed.
wheels=target/python-definitions
for package in dask-kubernetes==2026.3.0 magnum-cluster-api==0.38.2; do
	name=${package%==*}
	[ -f "$(echo $wheels/"${name//-/_}-${package#*==}"-*.whl)" ] ||
		"$venv/bin/pip" download -q --disable-pip-version-check --no-deps --only-binary=:all: -d "$wheels" "$package"
done
"$venv/bin/python" tests/python/test_definitions.py target/debug/torana "$wheels"
exec "$venv/bin/python" tests/python/test_client.py target/debug/torana target/debug/examples/extension-server
