"""Serving the console inside a running event loop."""

import contextlib
from collections.abc import AsyncIterator

from baton.codec.server import serving
from baton.console.app import console_app
from baton.console.security import Access
from baton.console.sources import Sources

DEFAULT_PORT = 8234
"""The port of the console, beside the Temporal UI's."""


@contextlib.asynccontextmanager
async def serve_console(
    sources: Sources, access: Access, *, host: str = "127.0.0.1", port: int = DEFAULT_PORT
) -> AsyncIterator[str]:
    """Serve the console while the context is open, and yield its address.

    Args:
        sources: What the pages read.
        access: Who may see and do what.
        host: The address to listen on.
        port: The port; 0 for a free one.
    """
    async with serving(console_app(sources, access), "the console", host=host, port=port) as url:
        yield url
