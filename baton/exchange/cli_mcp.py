"""`baton mcp`: an MCP server on standard input and output, by which a coding agent takes and returns handoffs."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from typing import Annotated

import typer

from baton.cli.session import Session, command, user
from baton.errors import BatonError
from baton.exchange.client_external import OutsideAgents
from baton.handoff.store_safeguards import Safeguards
from baton.ledger.cli_sources import LedgerOption, NameOption, ledger_name, ledger_place
from baton.wire.records import newest_first

try:
    from baton.exchange.client_mcp import HandoffTools, handoff_server
except ModuleNotFoundError as error:
    raise BatonError(f"`baton mcp` needs {error.name}: pip install 'temporal-baton[mcp]'") from error

_ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

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
    named = agent or os.environ.get("BATON_AGENT")
    if not named:
        raise typer.BadParameter("say who the agent is, by the name that pipelines hand to", param_hint="--agent")
    try:
        newest_first([agent_version])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--agent-version") from error
    if session.keyring is None:
        raise BatonError("there are no keys here, so no move would be believed; name the workers' keys with BATON_KEYS")
    guards = Safeguards(
        session.keyring, ledger_place(ledger), name=ledger_name(name), artifacts=session.parts.artifacts
    )
    client = await session.client()
    async with guards.opened() as guarded:
        tools = HandoffTools(
            OutsideAgents(client, guarded.gate),
            named,
            holder or os.environ.get("BATON_HOLDER") or f"{user()}@{socket.gethostname()}:{os.getpid()}",
            session.parts.artifacts,
            agent_version,
        )
        with _leaving_at_signals(tools):
            try:
                await handoff_server(tools).run_stdio_async()
            finally:
                await tools.leave()


@contextlib.contextmanager
def _leaving_at_signals(tools: HandoffTools) -> Iterator[None]:
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
