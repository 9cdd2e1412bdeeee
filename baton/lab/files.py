"""Cohorts and what came of them, as files of a folder that can be committed."""

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


def load_results(name: str, cohort: Cohort) -> Results:
    """Read a cohort's last results.

    Raises:
        LabError: They cannot be read, or are of other cases.
    """
    results = _read_results(name)
    if results.digest != cohort.digest:
        file = results_file(name)
        raise LabError(f"{file} is of other cases than {cohort_file(name)} has now; run `baton lab run {name}` again")
    return results


def save_cohort(name: str, cohort: Cohort) -> Path:
    """Write a cohort, and return its file."""
    file = cohort_file(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(cohort.to_bytes())
    return file


def save_results(name: str, cohort: Cohort, results: Results) -> Results:
    """Write what came of a cohort, with the gate's figures of the lab runs before it; return it."""
    before = _read_results(name).figures if results_file(name).exists() else []
    kept = [*before, *figures(cohort, results)][-_MAX_FIGURES:]
    results = results.model_copy(update={"figures": kept})
    results_file(name).write_bytes(results.to_bytes())
    return results


def _read_results(name: str) -> Results:
    file = results_file(name)
    return Results.from_bytes(_read(file, f"`baton lab run {name}` makes it"), str(file))


def _read(file: Path, remedy: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise LabError(f"{file} cannot be read ({error.strerror}); {remedy}") from error
