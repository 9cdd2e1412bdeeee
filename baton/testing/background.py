"""An event loop in a thread of its own, so that fixtures need no asyncio plugin and outlive every test's loop."""

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

ResultT = TypeVar("ResultT")


class BackgroundLoop:
    """An event loop that runs in a thread inside the `with` block.

    A server's process and a Temporal client that are made on it can be used from any other loop: the client calls
    back into the loop that awaits it. Workers cannot; they belong to the loop of the test.

    Example:
        >>> with BackgroundLoop() as loop:
        ...     loop.run(asyncio.sleep(0, "done"))
        'done'
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="baton-test-loop", daemon=True)

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine to its end on the loop, and return what it returned; call it from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def __enter__(self) -> Self:
        """Start the loop."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the loop and end its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
