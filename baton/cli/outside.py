"""`baton outside serve` and `baton mcp`: the two services through which outside agents take and return handoffs."""

import asyncio
import contextlib
import os
import signal
import socket
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from baton import Safeguards
from baton import client as public
from baton.cli.ledger_sources import LedgerOption, NameOption, ledger_name, ledger_place
from baton.cli.session import Session, command, current_user
from baton.client import OutsideAgents
from baton.errors import BatonError
from baton.wire.versions import newest_first

if TYPE_CHECKING:
    from baton.client import HandoffTools

_END_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

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
    """Serve handoffs to outside agents over HTTP, each with its own token.

    The keys come from the environment, as the worker's do, and accepted handoffs are recorded in the same ledger. It
    does not speak TLS: put it behind a reverse proxy if other machines can reach it. Ctrl-C or SIGTERM stops it.
    """
    serve_outside = _load("serve_outside", "outside serve", "codec")
    tokens_by_agent = _read_tokens(tokens)
    safeguards = _make_safeguards(session, ledger, name)
    client = await session.client()
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    async with safeguards.opened() as opened:
        try:
            agents = OutsideAgents(client, opened.gate)
            async with serve_outside(agents, tokens_by_agent, host=host, port=port) as url:
                for number in (signal.SIGINT, signal.SIGTERM):
                    with contextlib.suppress(NotImplementedError):  # on Windows
                        loop.add_signal_handler(number, stopped.set)
                session.note(f"serving {len(tokens_by_agent)} agents at {url}")
                await stopped.wait()
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
    """Serve handoffs to a coding agent over the Model Context Protocol.

    It uses standard input and output: add this command to the agent's list of MCP servers. The agent then lists its
    handoffs, accepts, reads the contract, and returns patches or reports; it never sees a key. Keys come from the
    environment, as the worker's do, and accepted handoffs are recorded in the same ledger. The end of its input,
    Ctrl-C or SIGTERM stops it; it then gives back what the agent still holds.
    """
    make_tools, make_server = _load("HandoffTools", "mcp", "mcp"), _load("handoff_server", "mcp", "mcp")
    agent_name = agent or os.environ.get("BATON_AGENT")
    if not agent_name:
        raise typer.BadParameter("name the agent as pipelines do when they hand off to it", param_hint="--agent")
    try:
        newest_first([agent_version])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--agent-version") from error
    safeguards = _make_safeguards(session, ledger, name)
    client = await session.client()
    async with safeguards.opened() as opened:
        tools: HandoffTools = make_tools(
            OutsideAgents(client, opened.gate),
            agent_name,
            holder or os.environ.get("BATON_HOLDER") or f"{current_user()}@{socket.gethostname()}:{os.getpid()}",
            session.artifacts,
            agent_version,
        )
        with _leave_on_signals(tools):
            try:
                await make_server(tools).run_stdio_async()
            finally:
                await tools.leave()


def _load(service: str, name: str, extra: str) -> Any:
    """Return a public name that needs an extra."""
    try:
        return getattr(public, service)
    except ModuleNotFoundError as error:
        raise BatonError(f"`baton {name}` needs {error.name}: pip install 'temporal-baton[{extra}]'") from error


def _make_safeguards(session: Session, ledger: str | None, name: str | None) -> Safeguards:
    if session.keyring is None:
        raise BatonError("there are no keys here to seal actions with; name the workers' keys with BATON_KEYS")
    return Safeguards(session.keyring, ledger_place(ledger), name=ledger_name(name), artifacts=session.artifacts)


def _read_tokens(file: Path) -> dict[str, str]:
    try:
        tokens = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="TOKENS.toml") from None
    if not tokens or not all(isinstance(token, str) for token in tokens.values()):
        raise typer.BadParameter(f'{file}: expected lines such as reviewer = "…"', param_hint="TOKENS.toml")
    return tokens


@contextlib.contextmanager
def _leave_on_signals(tools: "HandoffTools") -> Iterator[None]:
    """Give back what the agent holds before a signal ends the process; a second signal ends it at once."""
    loop = asyncio.get_running_loop()
    leave_tasks: list[asyncio.Task[None]] = []

    async def leave(number: int) -> None:
        try:
            await tools.leave()
        finally:
            _end_process(number)

    def stop(number: int) -> None:
        if leave_tasks:
            _end_process(number)
        leave_tasks.append(loop.create_task(leave(number)))

    with contextlib.ExitStack() as handlers:
        for number in _END_SIGNALS:
            with contextlib.suppress(NotImplementedError):  # on Windows, only the end of the input stops it
                loop.add_signal_handler(number, stop, number)
                handlers.callback(loop.remove_signal_handler, number)
        yield


def _end_process(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
