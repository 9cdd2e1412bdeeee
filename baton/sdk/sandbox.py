"""The workflow sandbox: which modules are loaded again for each run, and what is wrong with one that cannot be.

A pipeline's file, and the user's own modules that it imports, are executed for each run, with the clock, randomness
and I/O forbidden to workflow code. Installed packages are passed through: many cannot be loaded twice.
"""

import dataclasses
import linecache
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from temporalio.worker.workflow_sandbox import RestrictedWorkflowAccessError, SandboxRestrictions

from baton.errors import BatonError

_PACKAGES = ("site-packages", "dist-packages")
_LIBRARY = ("baton", "temporalio")
_LOADED_ANEW = (
    "A pipeline's file is executed again for each run and each replay, and must come to the same: take time, ids and "
    "randomness inside the pipeline from workflow.now(), workflow.uuid4() and workflow.random(), do other work in a "
    "stage, or import your module that does it inside `with workflow.unsafe.imports_passed_through():`."
)


class PipelineFileError(BatonError):
    """A pipeline's file cannot be loaded in the workflow sandbox. The message names the line and what to write."""


def pipeline_restrictions(configured: SandboxRestrictions) -> SandboxRestrictions:
    """Return restrictions that pass installed packages through, and let files be read while a module is loaded."""
    members = configured.invalid_module_members
    children = dict(members.children)
    if (paths := children.get("pathlib")) is not None:  # as `open`: forbidden to a running pipeline only
        kinds = {name: dataclasses.replace(kind, only_runtime=True) for name, kind in paths.children.items()}
        children["pathlib"] = dataclasses.replace(paths, children=kinds, only_runtime=True)
    return dataclasses.replace(
        configured.with_passthrough_modules("baton", *_installed()),
        invalid_module_members=dataclasses.replace(members, children=children),
    )


def without_own(restrictions: SandboxRestrictions, workflows: Iterable[type]) -> SandboxRestrictions:
    """Return restrictions that keep the packages of these workflows in the sandbox, also if they are installed."""
    own = {workflow.__module__.partition(".")[0] for workflow in workflows} - {*_LIBRARY}
    passed = restrictions.passthrough_modules
    defaults = SandboxRestrictions.passthrough_modules_default
    return dataclasses.replace(restrictions, passthrough_modules=passed - (own - defaults))


def _installed() -> set[str]:
    """Return the top-level modules of installed packages, but those that the user's own modules shadow."""
    folders = [Path(entry) for entry in sys.path if Path(entry).name in _PACKAGES]
    names = {entry.name.partition(".")[0] for folder in folders if folder.is_dir() for entry in folder.iterdir()}
    return {name for name in names if name.isidentifier() and not _is_own(name)}


def _is_own(name: str) -> bool:
    """Return whether a loaded module is the user's own: it lies outside the folders of installed packages."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is not None and not set(_PACKAGES) & set(Path(file).parts)


def load_fault(error: BaseException) -> str | None:
    """Return what the user's line did that cannot be done while a module is loaded in the sandbox, in two lines."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    if not frames:
        return None
    file, number = frames[-1].filename, frames[-1].lineno or 0
    code = linecache.getline(file, number).strip()
    why = f"{type(error).__name__}: {error}"
    if isinstance(error, RestrictedWorkflowAccessError):
        why = f"{error.qualified_name.removesuffix('.__call__')} may not be used"
    return f"{file}, line {number}: `{code}` fails in the workflow sandbox: {why}.\n{_LOADED_ANEW}"


def users_traceback(error: BaseException) -> list[str]:
    """Return the lines of an error's traceback from the user's first frame on."""
    trace = error.__traceback__
    while trace is not None and not _is_users(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return traceback.format_exception(type(error), error, trace)


def _is_users(file: str) -> bool:
    """Return whether a traceback's file is neither Python's, nor that of a package, nor Baton's."""
    parts = Path(file).parts
    library = Path(traceback.__file__).parent
    baton = Path(__file__).parents[1]
    is_real = file.endswith(".py") and file != "workflow_sandbox.py"
    return is_real and not set(_PACKAGES) & set(parts) and not {library, baton} & {*Path(file).parents}


@contextmanager
def naming_lines() -> Iterator[None]:
    """Raise a `PipelineFileError` of the block instead of the SDK's error around it."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__cause__, PipelineFileError):
            raise error.__cause__ from None
        raise
