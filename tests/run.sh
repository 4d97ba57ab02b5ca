#!/bin/sh
# All tests, on a clean clone: installs what they need, then lint, types, layers, unit tests, lab tests.
#   usage: run.sh [pytest's arguments]     with arguments: only pytest, with them
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
sh sparkop/lab/install.sh dev
bin=${SPARKOP_VENV:-$root/.venv}/bin
PATH="$bin:$PATH"
export PATH
# Where it is set, each of pytest's processes compiles all tests again: half of its start.
unset PYTHONDONTWRITEBYTECODE

step() {
    printf '\n== %s\n' "$*" >&2
    "$@"
}

if [ $# -gt 0 ]; then
    step python -m pytest "$@"
    exit
fi
# Beside lint, which keeps one core busy: tests are compiled once for all of pytest's processes, and the lab's
# vLLM (2.4 GB) comes, also beside unit tests. What fails here is tried again, and told, by the tests.
setsid sh -c '
    python -m pytest -q --collect-only &
    exec python -c "from sparkop.lab.engine_venv import ensure_venv; ensure_venv()"
' >/dev/null 2>&1 &
beside=$!
trap 'kill -- -"$beside" 2>/dev/null || :' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
step ruff check .
step ruff format --check .
step mypy
step lint-imports
# More processes than cores: tests wait, for programs that start, for downloads, for states of the lab.
step python -m pytest -m "not lab and not vllm" -n 3 --dist loadfile --no-loadscope-reorder
# Only the files that have such tests: to read all of them costs each process half a minute.
# shellcheck disable=SC2046 # names without blanks
step python -m pytest -m "lab or vllm" -n 4 --dist loadfile --no-loadscope-reorder --timeout 600 \
    $(grep -rlE 'mark\.(lab|vllm)\b' --include='test_*.py' tests)
