#!/usr/bin/env bash
# Makes .venv and fills it with scripts/requirements.txt; only `make accept` needs it.
set -euo pipefail
cd "$(dirname "$0")/.."

[ -x .venv/bin/python ] || python3 -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement scripts/requirements.txt
