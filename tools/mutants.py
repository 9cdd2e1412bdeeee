"""Change lines of `baton/` one at a time, and list the changes that no test of their room notices.

`make mutants` runs it, for a night; `MUTANTS_ARGS="--rooms budget --sample 20 --seed 7"` for a part. cosmic-ray makes
the changes, in a copy of the last commit below `build/`.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkResult

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "mutants"
COPY = BUILD / "copy"
ROOMS = ("core", "contract", "handoff", "budget", "ledger", "report")

# Types are written with `|`, which Python reads whatever it becomes.
_UNCHANGED = ["core/ReplaceBinaryOperator_BitOr_.*", "core/RemoveDecorator"]
_CONFIG = """
[cosmic-ray]
module-path = "baton/{room}"
timeout = {timeout}
excluded-modules = []
test-command = "{python} -m pytest -x -q -p no:cacheprovider -m 'not system' tests/{room}"

[cosmic-ray.distributor]
name = "local"

[cosmic-ray.filters.operators-filter]
exclude-operators = {unchanged}
"""


def main() -> int:
    """Return 1 if a change survived, so that a night's job shows it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=ROOMS)
    parser.add_argument("--sample", type=int, help="so many changes of each room, drawn at random (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="draws other ones")
    parser.add_argument("--timeout", type=float, default=600, help="seconds until a change counts as noticed")
    options = parser.parse_args()
    _copy_last_commit()
    survivors = [change for room in options.rooms for change in _changes_of(room, options)]
    print(f"\n{len(survivors)} changes were not noticed", *survivors, sep="\n\n")
    return 1 if survivors else 0


def _copy_last_commit() -> None:
    COPY.mkdir(parents=True, exist_ok=True)
    git, tar = (shutil.which(name) or name for name in ("git", "tar"))
    archive = subprocess.run([git, "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run([tar, "x"], cwd=COPY, check=True, input=archive)


def _changes_of(room: str, options: argparse.Namespace) -> list[str]:
    """Make the changes of a room, and return those that survived."""
    config, session = BUILD / f"{room}.toml", BUILD / f"{room}.sqlite"
    python = ROOT / ".venv" / "bin" / "python"
    text = _CONFIG.format(room=room, timeout=options.timeout, python=python, unchanged=_UNCHANGED)
    config.write_text(text, encoding="utf-8")
    session.unlink(missing_ok=True)
    _run("cosmic-ray", "baseline", str(config))  # an unchanged room has to pass
    _run("cosmic-ray", "init", str(config), str(session))
    _run("cr-filter-operators", str(session), str(config))
    with use_db(str(session), WorkDB.Mode.open) as changes:
        _draw(changes, options)
    _run("cosmic-ray", "exec", str(config), str(session))
    with use_db(str(session), WorkDB.Mode.open) as changes:
        results = [result for _, result in changes.results if result.worker_outcome is WorkerOutcome.NORMAL]
    survived = [result.diff or "" for result in results if result.test_outcome is TestOutcome.SURVIVED]
    print(f"{room}: {len(results) - len(survived)} of {len(results)} changes were noticed", flush=True)
    return survived


def _draw(changes: WorkDB, options: argparse.Namespace) -> None:
    """Skip all changes that were not drawn."""
    left = sorted(
        changes.pending_work_items, key=lambda item: (item.mutations[0].module_path, item.mutations[0].start_pos)
    )
    drawn = left if options.sample is None else random.Random(options.seed).sample(left, min(options.sample, len(left)))  # noqa: S311 - no secret
    skipped = {item.job_id for item in left} - {item.job_id for item in drawn}
    changes.set_multiple_results(skipped, WorkResult(worker_outcome=WorkerOutcome.SKIPPED))


def _run(program: str, *arguments: str) -> None:
    subprocess.run(
        [Path(sys.executable).parent / program, *arguments],
        cwd=COPY,
        env={**os.environ, "PYTHONPATH": str(COPY)},
        check=True,
    )


if __name__ == "__main__":
    sys.exit(main())
