"""Cohorts and what came of them, as files of a folder that can be committed."""

import os
from pathlib import Path

from baton.lab.judging import figures
from baton.lab.records import Cohort, LabError, Results

FOLDER = Path("lab")
"""Where cohorts are, if their name is not a path."""
_MAX_FIGURES = 500


def cohort_file(name: str) -> Path:
    """Return the file of a cohort."""
    return Path(name) if name.endswith(".json") else FOLDER / f"{name}.json"


def results_file(name: str) -> Path:
    """Return the file of a cohort's last results."""
    return cohort_file(name).with_suffix(".results.json")


def list_cohorts(folder: Path = FOLDER) -> list[Path]:
    """Return the files of all cohorts."""
    return [file for file in sorted(folder.glob("*.json")) if not file.name.endswith(".results.json")]


def load_cohort(name: str) -> Cohort:
    """Read a cohort.

    Raises:
        LabError: It cannot be read, or was changed without its digest.
    """
    return Cohort.from_bytes(_read(cohort_file(name), f"`baton lab new {name}` makes one"), str(cohort_file(name)))


def last_results(name: str) -> Results | None:
    """Read a cohort's last results, whatever cases they are of; None if there are none.

    Raises:
        LabError: They cannot be read.
    """
    file = results_file(name)
    return Results.from_bytes(_read(file, "make it readable"), str(file)) if file.exists() else None


def load_results(name: str, cohort: Cohort) -> Results:
    """Read a cohort's last results.

    Raises:
        LabError: There are none, they cannot be read, or are of other cases.
    """
    results, file = last_results(name), results_file(name)
    if results is None:
        raise LabError(f"there is no {file}; `baton lab run {name}` makes it")
    if results.digest != cohort.digest:
        raise LabError(f"{file} is of other cases than {cohort_file(name)} has now; run `baton lab run {name}` again")
    return results


def save_cohort(name: str, cohort: Cohort) -> Path:
    """Write a cohort, and return its file."""
    return _write(cohort_file(name), cohort.to_bytes())


def save_results(name: str, cohort: Cohort, results: Results, before: Results | None = None) -> Results:
    """Write what came of a cohort, with the gate's figures of the lab runs before it; return it.

    Read `last_results` before a lab run that costs something: if they cannot be read, nothing is lost yet.
    """
    before = before or last_results(name)
    kept = [*(before.figures if before else []), *figures(cohort, results)][-_MAX_FIGURES:]
    results = results.model_copy(update={"figures": kept})
    _write(results_file(name), results.to_bytes())
    return results


def _write(file: Path, data: bytes) -> Path:
    """Write a file whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.{os.getpid()}.new")
    try:
        temporary.write_bytes(data)
        return temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def _read(file: Path, remedy: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise LabError(f"{file} cannot be read ({error.strerror}); {remedy}") from error
