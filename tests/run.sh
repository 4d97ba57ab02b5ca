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
# Beside lint, which keeps one core busy: tests are compiled once for all of pytest's processes, and what takes
# long to come comes: Pi, and the lab's vLLM (2.4 GB). What fails here is tried again, and told, by the tests.
setsid sh -c '
    { python -m pytest -q --collect-only; python -m pytest -q --setup-only tests/clients/test_pi.py; } &
    exec python -c "from sparkop.lab.engine_venv import ensure_venv; ensure_venv()"
' >/dev/null 2>&1 &
beside=$! unit='' lab=''
unit_log=$(mktemp)
end() {
    kill -- -"$beside" 2>/dev/null || :
    # shellcheck disable=SC2086 # each of the two may be none
    if [ -n "$unit$lab" ]; then
        kill -INT $unit $lab 2>/dev/null || :
        wait $unit $lab || :
    fi
    rm -f "$unit_log"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
step ruff check .
step ruff format --check .
step mypy
step lint-imports
# Side by side: unit tests keep cores busy, lab tests wait, for programs that start and for states of the lab.
# These have deadlines, so the others give way a little. More processes than cores, as unit tests wait too.
# Each in a session of its own: Ctrl-C reaches it once, by the end of this script.
setsid nice -n 5 python -m pytest -m "not lab and not vllm" -n 3 --dist loadfile --no-loadscope-reorder \
    >"$unit_log" 2>&1 &
unit=$!
wait "$beside" || :
# Only the files that have such tests: to read all of them costs each process half a minute.
printf '\n== lab tests\n' >&2
# shellcheck disable=SC2046 # names without blanks
setsid python -m pytest -m "lab or vllm" -n 4 --dist loadfile --no-loadscope-reorder --timeout 600 \
    $(grep -rlE 'mark\.(lab|vllm)\b' --include='test_*.py' tests) &
lab=$!
failed=0
wait "$lab" || failed=$?
lab=''
wait "$unit" || failed=$?
unit=''
printf '\n== unit tests\n' >&2
cat "$unit_log"
exit "$failed"
