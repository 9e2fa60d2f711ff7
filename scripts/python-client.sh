#!/usr/bin/env bash
# Runs tests/python, whose programs start gateways of their own: a webhook server with the standard library, then the official
# Python client.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 tests/python/test_webhooks.py target/debug/torana
venv=target/python-venv
if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import kubernetes' 2>/dev/null; then
	python3 -m venv "$venv"
	"$venv/bin/pip" install -q --disable-pip-version-check 'kubernetes==36.0.3'
fi
exec "$venv/bin/python" tests/python/test_client.py target/debug/torana target/debug/examples/extension-server
