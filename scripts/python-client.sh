#!/usr/bin/env bash
# Runs tests/python, which starts its own gateway, with the official Python client.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=target/python-venv
if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import kubernetes' 2>/dev/null; then
	python3 -m venv "$venv"
	"$venv/bin/pip" install -q --disable-pip-version-check 'kubernetes==36.0.3'
fi
exec "$venv/bin/python" tests/python/test_client.py target/debug/torana target/debug/examples/extension-server
