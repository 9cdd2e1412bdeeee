"""`baton outside serve`: the HTTP service by which agents outside fetch, answer and return handoffs."""

import asyncio
import contextlib
import signal
import tomllib
from pathlib import Path
from typing import Annotated

import typer

from baton.cli.session import Session, command
from baton.errors import BatonError
from baton.exchange.client_external import OutsideAgents
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.cli_sources import LedgerOption, NameOption, ledger_name, ledger_place

try:
    from baton.exchange.client_http import serve_outside
except ModuleNotFoundError as error:
    raise BatonError(f"`baton outside serve` needs {error.name}: pip install 'temporal-baton[codec]'") from error

TokensArgument = Annotated[
    Path,
    typer.Argument(metavar="TOKENS.toml", help='Each agent\'s token: lines such as reviewer = "…", 16 characters.'),
]
HostOption = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.")]
PortOption = Annotated[int, typer.Option("--port", metavar="N", help="The port; 0 for a free one.")]


@command
async def serve(
    session: Session,
    tokens: TokensArgument,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8090,
    ledger: LedgerOption = None,
    name: NameOption = None,
) -> None:
    """Serve handoffs to agents outside over HTTP, each with a token of its own.

    The keys come from the environment as the worker's do, and what an agent accepts is recorded in the same ledger. It
    speaks no TLS: put a reverse proxy before it where other machines reach it. It ends by Ctrl-C or SIGTERM.
    """
    given = _tokens(tokens)
    if session.keyring is None:
        raise BatonError("no signing keys: set BATON_KEYS to the workers' key file, or every answer would be rejected")
    guards = Safeguards(
        session.keyring, ledger_place(ledger), name=ledger_name(name), artifacts=session.parts.artifacts
    )
    client = await session.client()
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    async with guards.opened() as guarded:
        try:
            async with serve_outside(OutsideAgents(client, guarded.gate), given, host=host, port=port) as url:
                for number in (signal.SIGINT, signal.SIGTERM):
                    with contextlib.suppress(NotImplementedError):  # on Windows
                        loop.add_signal_handler(number, ended.set)
                session.note(f"serving {len(given)} agents at {url}")
                await ended.wait()
        except ValueError as error:
            raise BatonError(f"{tokens}: {error}") from None


def _tokens(file: Path) -> dict[str, str]:
    """Return each agent's token."""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="TOKENS.toml") from None
    if not found or not all(isinstance(token, str) for token in found.values()):
        raise typer.BadParameter(f'{file}: expected lines such as reviewer = "…"', param_hint="TOKENS.toml")
    return found
