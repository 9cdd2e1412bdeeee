"""A pipeline that is held in its first workflow task, by a test in the same process; its module passes the sandbox."""

import threading

HELD = threading.Event()
"""Set once the pipeline stands still."""
GO = threading.Event()
"""Lets it go on."""


def stand_still() -> None:
    """Wait until the test lets the pipeline go on, for less time than a workflow task may take to answer."""
    HELD.set()
    GO.wait(1.5)
