#!/bin/sh
# Writes what is made from the models: schemas, reference page, expected errors of the bad specs.
set -eu
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
"$python" -m sparkop schema > docs/reference/schema/clusterspec.schema.json
"$python" -m sparkop schema --overlay > docs/reference/schema/overlay.schema.json
"$python" -m sparkop schema --markdown > docs/reference/spec.md
"$python" -m tests.spec.corpus
git diff --stat -- docs/reference tests/data/specs
