"""What is collected, and by which goal: `make test`, or `make test-system` for the tests of ``SYSTEM``."""

import gc
from collections.abc import Generator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent

# Files and folders that need a browser, a database, another environment, killed processes, a storm, or minutes.
SYSTEM = (
    "tests/acceptance",
    "tests/agents/coding_agents/test_mcp_process.py",
    "tests/cli/test_supervising.py",
    "tests/console/browser",
    "tests/console/test_command.py",
    "tests/devserver/test_child.py",
    "tests/devserver/test_devserver.py",
    "tests/doors/test_a2a_tck.py",
    "tests/doors/test_serve_command.py",
    "tests/doors/clients/browser",
    "tests/doors/clients/test_mcp_conformance.py",
    "tests/exchange/test_exchange_faults.py",
    "tests/exchange/test_outside_command.py",
    "tests/ledger/test_queue.py",
    "tests/ledger/test_writing.py",
    "tests/ledger_postgres",
    "tests/new",
    "tests/personal/test_processes.py",
    "tests/pipelines/test_missing.py",
    "tests/project/test_examples.py",
    "tests/project/test_page_blocks.py",
    "tests/project/test_release.py",
    "tests/project/test_restoring.py",
    "tests/project/test_site.py",
    "tests/runs/test_ending_programs.py",
    "tests/runs/test_situations.py",
    "tests/shipped/test_installed.py",
    "tests/skill/test_task10.py",
    "tests/storm",
)


def is_system(path: Path) -> bool:
    """Whether a file's tests are those of `make test-system`."""
    return any(path.is_relative_to(ROOT / listed) for listed in SYSTEM)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the other goal's files out before they are imported."""
    wanted = {"system": True, "not system": False}.get(config.option.markexpr)
    return True if collection_path.is_file() and wanted is (not is_system(collection_path)) else None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for examples in no test, and in no module without one: the modules of the adapters load frameworks."""
    items = yield
    if items and (file_path.is_relative_to(ROOT / "tests") or b">>>" not in file_path.read_bytes()):
        return [item for item in items if type(item) is pytest.Module]
    return items


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of ``SYSTEM``."""
    if is_system(item.path):
        item.add_marker("system")


def pytest_collection_finish() -> None:
    """Leave ten thousand tests out of garbage collection, and look through all else only between two modules.

    Looking through everything stops a process for a second, on a busy machine for two, which is all that a workflow's
    task may take.
    """
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, 1_000_000)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Collect what a module left behind."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
