"""`baton mcp`: an agent outside takes and returns handoffs over standard input and output."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from baton import client as public
from baton.cli.ledger_sources import LedgerOption, NameOption, make_safeguards
from baton.cli.session import STOP_SIGNALS, Session, command, current_user
from baton.client import OutsideAgents
from baton.errors import BatonError
from baton.wire.versions import newest_first

if TYPE_CHECKING:
    from baton.client import HandoffTools

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
    safeguards = make_safeguards(session, ledger, name)
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
        for number in STOP_SIGNALS:
            with contextlib.suppress(NotImplementedError):  # on Windows, only the end of the input stops it
                loop.add_signal_handler(number, stop, number)
                handlers.callback(loop.remove_signal_handler, number)
        yield


def _end_process(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
