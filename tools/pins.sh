#!/bin/sh
# Write requirements/*.txt anew from pyproject.toml. `make pins` runs this; commit what it changes.
#
# Pins stay as they are unless pyproject.toml rules them out; PINS_ARGS=--upgrade takes the newest of everything, and
# PINS_ARGS="--upgrade-package NAME" of one package. The files name packages, versions and hashes for every platform and
# for Python 3.11 and newer, and never an index: it is each machine's own affair where it downloads from.
set -eu
cd "$(dirname "$0")/.."
export UV_PYTHON_DOWNLOADS=never UV_SYSTEM_CERTS=1

compile() {
    # shellcheck disable=SC2086 # PINS_ARGS holds several words
    .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-header ${PINS_ARGS:-} "$@"
}

compile --group setup --output-file requirements/uv.txt
compile --all-extras --group dev --output-file requirements/dev.txt pyproject.toml
compile --group mutants --output-file requirements/mutants.txt
compile --extra tokens --extra objects --extra codec --extra console --extra a2a --extra mcp --extra ag-ui --extra postgres --extra otel --extra pipelines --constraints requirements/dev.txt \
    --output-file requirements/run.txt pyproject.toml

if grep -n '://' requirements/*.txt; then
    echo "pins: the lines above name a host; unset the index settings that put them there and run this again" >&2
    exit 1
fi
