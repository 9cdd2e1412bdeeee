#!/bin/sh
# Fill .venv with exactly the pinned packages, and with Baton itself in editable form. `make setup` runs this.
#
# Needed beforehand: Python 3.11 or newer with its venv module, and a package index that pip can reach.
# uv does the work in seconds; where uv cannot be had, or cannot reach an index (it does not read pip's settings),
# pip does the same work from the same pins. Every download is checked against its hash in requirements/, so it
# does not matter which index or mirror the environment names.
set -eu
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$@" >&2; exit 1; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not a Python 3.11 or newer; name one that is."
        return
    fi
    for PYTHON in python3 python3.14 python3.13 python3.12 python3.11; do
        if new_enough "$PYTHON"; then return; fi
    done
    fail "found no Python 3.11 or newer ($(python3 --version 2>&1 || true))." \
        "Install one, or name it: make setup PYTHON=/path/to/python3.12"
}

make_venv() {
    say "making .venv with $("$PYTHON" --version)"
    words=$("$PYTHON" -m venv --clear .venv 2>&1) || fail "$words" \
        "$PYTHON cannot make a virtual environment: see its words above." \
        "On Debian and Ubuntu: apt-get install python3-venv. Then run make again."
}

with_uv() {
    .venv/bin/python -m pip install --quiet --require-hashes -r requirements/uv.txt || return
    mkdir -p "$(.venv/bin/uv cache dir)" 2>/dev/null || export UV_NO_CACHE=1 # a home that cannot be written
    .venv/bin/uv pip sync --quiet --python .venv/bin/python --require-hashes requirements/dev.txt
}

with_pip() {
    .venv/bin/python -m pip install --quiet --require-hashes -r requirements/dev.txt
}

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_USER=0
export UV_PYTHON_DOWNLOADS=never        # a missing Python is an error to read, not a download
export UV_SYSTEM_CERTS=1                # trust the certificates that the machine trusts, as pip does
export UV_INDEX_STRATEGY=unsafe-best-match # look in every index that is set; safe, because the hashes decide

if ! new_enough .venv/bin/python || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    find_python
    make_venv
fi

log=.venv/setup.log
say "installing the pinned packages into .venv (a minute at most the first time)"
if ! with_uv >"$log" 2>&1; then
    say "uv could not do it (its words are in $log); going on with pip"
    with_pip >>"$log" 2>&1 || {
        cat "$log" >&2
        fail "pip could not install requirements/dev.txt: see its words above." \
            "Check that this machine reaches a package index (PIP_INDEX_URL names another), then run make again."
    }
fi

# The build backend is among the pins, so this step fetches nothing. It looks for its program on PATH.
PATH="$PWD/.venv/bin:$PATH" .venv/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable . >>"$log" 2>&1 || {
    cat "$log" >&2
    fail "the checkout itself did not install: see pip's words above. Is pyproject.toml whole, and README.md there?"
}
say "ready: $(.venv/bin/python --version) in .venv"
