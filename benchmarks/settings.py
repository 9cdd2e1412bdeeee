"""The settings of the workers that are measured."""

import gc
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from baton import __version__

SETTINGS: dict[str, dict[str, Any]] = {
    "shipped": {
        "sticky_queue_schedule_to_start_timeout": timedelta(milliseconds=750),
        "build_id": f"baton-{__version__}",
        "workflow_task_executor": ThreadPoolExecutor(1),
        "max_concurrent_workflow_tasks": 200,
        "max_concurrent_activities": 200,
        "max_workflow_task_external_storage_concurrency": 1,  # what `BatonPlugin` sets: the same for both sides
    },
    "stock": {},
}
"""Worker settings by name: those of the shipped `worker.py`, with room for every pipeline at once; the SDK's own."""
COLLECT_AFTER = 5_000
"""So many new objects make the shipped `worker.py` look for garbage."""


def collect_as(settings: str) -> None:
    """Have this process look for garbage as a worker with these settings does; with stock ones as Python does."""
    if settings == "shipped":
        gc.set_threshold(COLLECT_AFTER)
