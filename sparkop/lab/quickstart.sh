#!/bin/sh
# From a bare Debian or Ubuntu machine to an answer from a model served over two (lab) hosts. Needs root.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
cd "$root"
sh sparkop/lab/install.sh
venv=${SPARKOP_VENV:-$root/.venv}
PATH="$venv/bin:$PATH"
export PATH

run() {
    printf '\n$ %s\n' "$*" >&2
    "$@"
}

run sparkop lab up
run sparkop apply specs/lab.yaml

# As any OpenAI client would ask. The key goes from file to header without being on a command line.
printf '\n$ curl http://spark-1:8000/v1/chat/completions   (question: What is 17 * 23?)\n' >&2
sparkop lab run -- sh -c '
    ssh spark-1 "printf \"Authorization: Bearer \"; cat .sparkop/lab/api_key" |
    curl -sS --fail-with-body -H @- -H "Content-Type: application/json" http://spark-1:8000/v1/chat/completions \
        -d "{\"model\": \"tiny-chat\", \"messages\": [{\"role\": \"user\", \"content\": \"What is 17 * 23?\"}]}"' |
    python -c 'import json, sys; print("answer:", json.load(sys.stdin)["choices"][0]["message"]["content"])'
printf '\nThe lab stays up. Next: . %s/bin/activate, then sparkop status, sparkop diff; at the end ' "${venv#"$root/"}" >&2
printf 'sparkop stop && sparkop lab down\n' >&2
