"""`baton outside serve` and `baton mcp`: the two services by which agents outside take and return handoffs."""

import asyncio
import contextlib
import os
import signal
import socket
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from baton.cli.session import Session, command, current_user
from baton.errors import BatonError
from baton.exchange.client_external import OutsideAgents
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.cli_sources import LedgerOption, NameOption, ledger_name, ledger_place
from baton.wire.records import newest_first

if TYPE_CHECKING:
    from baton.exchange.client_mcp import HandoffTools

_ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

TokensArgument = Annotated[
    Path,
    typer.Argument(metavar="TOKENS.toml", help='Each agent\'s token: lines such as reviewer = "…", 16 characters.'),
]
HostOption = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.")]
PortOption = Annotated[int, typer.Option("--port", metavar="N", help="The port; 0 for a free one.")]
AgentOption = Annotated[
    str | None,
    typer.Option("--agent", metavar="NAME", help="Whose handoffs it takes: those to this name. [BATON_AGENT]"),
]
HolderOption = Annotated[
    str | None,
    typer.Option(
        "--holder", metavar="NAME", help="Which one of its kind the agent is. [BATON_HOLDER, you@this-machine:process]"
    ),
]
VersionOption = Annotated[str, typer.Option("--agent-version", metavar="X.Y.Z", help="The agent's version.")]


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
    service = _loaded("baton.exchange.client_http", "outside serve", "codec")
    given = _tokens(tokens)
    guards = _guards(session, ledger, name)
    client = await session.client()
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    async with guards.opened() as guarded:
        try:
            agents = OutsideAgents(client, guarded.gate)
            async with service.serve_outside(agents, given, host=host, port=port) as url:
                for number in (signal.SIGINT, signal.SIGTERM):
                    with contextlib.suppress(NotImplementedError):  # on Windows
                        loop.add_signal_handler(number, ended.set)
                session.note(f"serving {len(given)} agents at {url}")
                await ended.wait()
        except ValueError as error:
            raise BatonError(f"{tokens}: {error}") from None


@command
async def mcp(
    session: Session,
    agent: AgentOption = None,
    holder: HolderOption = None,
    agent_version: VersionOption = "1.0.0",
    ledger: LedgerOption = None,
    name: NameOption = None,
) -> None:
    """Serve handoffs to a coding agent by the Model Context Protocol.

    On standard input and output: name this command in the agent's list of MCP servers. The agent then lists what
    waits for it, accepts, reads the contract, and returns patches or reports; it never sees a key. Keys come from
    the environment as the worker's do, and what it accepts is put on record in the same ledger. It ends when its
    input does, or by Ctrl-C or SIGTERM, and gives back what the agent still holds.
    """
    server = _loaded("baton.exchange.client_mcp", "mcp", "mcp")
    named = agent or os.environ.get("BATON_AGENT")
    if not named:
        raise typer.BadParameter("say who the agent is, by the name that pipelines hand to", param_hint="--agent")
    try:
        newest_first([agent_version])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--agent-version") from error
    guards = _guards(session, ledger, name)
    client = await session.client()
    async with guards.opened() as guarded:
        tools: HandoffTools = server.HandoffTools(
            OutsideAgents(client, guarded.gate),
            named,
            holder or os.environ.get("BATON_HOLDER") or f"{current_user()}@{socket.gethostname()}:{os.getpid()}",
            session.parts.artifacts,
            agent_version,
        )
        with _leaving_at_signals(tools):
            try:
                await server.handoff_server(tools).run_stdio_async()
            finally:
                await tools.leave()


def _loaded(module: str, name: str, extra: str) -> Any:
    """Return the module of a service, whose framework is an extra."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise BatonError(f"`baton {name}` needs {error.name}: pip install 'temporal-baton[{extra}]'") from error


def _guards(session: Session, ledger: str | None, name: str | None) -> Safeguards:
    """Return the safeguards by which agents outside accept handoffs, and by which their moves are believed."""
    if session.keyring is None:
        raise BatonError("there are no keys here, so no move would be believed; name the workers' keys with BATON_KEYS")
    return Safeguards(session.keyring, ledger_place(ledger), name=ledger_name(name), artifacts=session.parts.artifacts)


def _tokens(file: Path) -> dict[str, str]:
    """Return each agent's token."""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="TOKENS.toml") from None
    if not found or not all(isinstance(token, str) for token in found.values()):
        raise typer.BadParameter(f'{file}: expected lines such as reviewer = "…"', param_hint="TOKENS.toml")
    return found


@contextlib.contextmanager
def _leaving_at_signals(tools: "HandoffTools") -> Iterator[None]:
    """Give back what the agent holds before a signal ends this process; a second one ends it at once."""
    loop = asyncio.get_running_loop()
    leaving: list[asyncio.Task[None]] = []

    async def leave(number: int) -> None:
        try:
            await tools.leave()
        finally:
            _end_by(number)

    def stop(number: int) -> None:
        if leaving:
            _end_by(number)
        leaving.append(loop.create_task(leave(number)))

    with contextlib.ExitStack() as handlers:
        for number in _ENDING:
            with contextlib.suppress(NotImplementedError):  # on Windows nothing but the end of the input is heard
                loop.add_signal_handler(number, stop, number)
                handlers.callback(loop.remove_signal_handler, number)
        yield


def _end_by(number: int) -> None:
    """End this process by a signal, as it would have without a handler."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
