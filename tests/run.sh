#!/bin/sh
# All tests, on a clean clone: installs what they need, then lint, types, layers, unit tests, lab tests.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
sh sparkop/lab/install.sh dev
bin=${SPARKOP_VENV:-$root/.venv}/bin
PATH="$bin:$PATH"
export PATH

step() {
    printf '\n== %s\n' "$*" >&2
    "$@"
}

step ruff check .
step ruff format --check .
step mypy
step lint-imports
step python -m pytest "$@"
