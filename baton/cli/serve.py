"""`baton serve`: pipelines for other programs, over the protocols that those know."""

import asyncio
import contextlib
import json
import os
import secrets
import tomllib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from temporalio.client import Client

from baton.cli.handoff import read_trust
from baton.cli.ledger_sources import LedgerOption, NameOption, make_safeguards
from baton.cli.options import OptionGroup
from baton.cli.pipeline_code import pipelines_in
from baton.cli.session import KEYS_FOLDER, Session, command, current_user
from baton.client import DEFAULT_TASK_QUEUE
from baton.devserver.processes import held_port
from baton.errors import BatonError
from baton.keys.store_keyring import Keyring

try:
    from baton.cli.access import check_address, read_proxy, set_on_stop
    from baton.client import Access, Offer, Orders, OutsideAgents, ServiceParts, Tokens, serve_service, service
    from baton.client.faces import SERVE_PORT
except ModuleNotFoundError as error:
    raise BatonError(f"this command needs {error.name}: pip install 'temporal-baton[mcp]', a2a or ag-ui") from error

TOKENS = KEYS_FOLDER / "tokens.toml"
"""The file of this machine's own token, made on first use."""


@dataclass(frozen=True)
class AccessOptions(OptionGroup):
    """The options that say where a service listens, and who may call it."""

    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: a free one.")] = SERVE_PORT
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1"
    url: Annotated[str | None, typer.Option(metavar="URL", help="The public address, if callers use another one.")] = (
        None
    )
    tokens: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f'Each caller\'s token: lines such as ann = "…". [{TOKENS}, made for you]'),
    ] = None
    people: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Instead of tokens: the proxy that authenticates, as for `baton console`."),
    ] = None
    origin: Annotated[
        list[str] | None,
        typer.Option("--origin", metavar="URL", help="Another site whose pages may call it in a browser."),
    ] = None
    push: Annotated[
        list[str] | None,
        typer.Option("--push", metavar="URL", help="An origin that notifications may go to; signed, so it needs keys."),
    ] = None

    def access(self, keyring: Keyring | None) -> Access:
        """Return who may call; raise if there are no keys to sign notifications with."""
        if self.push and keyring is None:
            raise BatonError("there are no keys here to sign notifications with; name them with BATON_KEYS")
        if self.people is not None and self.tokens is not None:
            raise typer.BadParameter("give tokens or a proxy that authenticates, not both", param_hint="--people")
        origins = self.origin or []
        if self.people is not None:
            return Access(proxy=read_proxy(self.people), origins=origins)
        return Access(tokens=Tokens.read(self.tokens or own_tokens()), origins=origins)


@dataclass(frozen=True)
class OrderOptions(OptionGroup):
    """The options of taking orders of other companies."""

    trust: Annotated[
        Path | None,
        typer.Option(
            "--trust",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Take orders over A2A that a key in this file signed, with the workers' keys and ledger.",
        ),
    ] = None
    audience: Annotated[
        str | None, typer.Option("--audience", metavar="NAME", help="The name that this company goes by in orders.")
    ] = None


@command
async def serve(
    session: Session,
    pipelines: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PIPELINE|FILE.py]…", help="What callers may start; a file: all its pipelines."),
    ] = None,
    offers: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A TOML file with a table for each pipeline: description, task_queue, and params, a JSON Schema.",
        ),
    ] = None,
    task_queue: Annotated[
        str,
        typer.Option("--task-queue", metavar="NAME", envvar="BATON_TASK_QUEUE", help="The task queue of its workers."),
    ] = DEFAULT_TASK_QUEUE,
    agents: Annotated[
        bool,
        typer.Option(
            "--agents",
            help="Also serve handoffs to agents outside, over MCP and A2A, with the workers' keys and ledger.",
        ),
    ] = False,
    ledger: LedgerOption = None,
    name: NameOption = None,
    options: AccessOptions = AccessOptions(),
    ordering: OrderOptions = OrderOptions(),
) -> None:
    """Serve pipelines to other programs, over A2A, MCP and AG-UI.

    It listens on this machine only, and each caller has a token. A run belongs to the caller who started it, and is
    not there for the others; a handoff to an agent outside belongs to the caller of that name. It keeps nothing: what
    callers read comes from the histories, so it can be restarted and copied at will. It does not speak TLS: put it
    behind a reverse proxy if other machines can reach it.
    """
    check_address(options.host, options.url)
    offered = make_offers(pipelines or [], offers, task_queue) if pipelines or offers or not agents else {}
    access, trust = options.access(session.keyring), read_trust(ordering.trust) if ordering.trust else None
    safeguards = make_safeguards(session, ledger, name) if agents or trust else None
    client = await session.client()
    stopped = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        outside = orders = None
        if safeguards is not None:
            gate = (await stack.enter_async_context(safeguards.opened())).gate
            outside = OutsideAgents(client, gate) if agents else None
            orders = Orders(gate, trust, ordering.audience) if trust else None
        url = await stack.enter_async_context(served(session, client, offered, options, access, outside, orders))
        set_on_stop(stopped)
        if session.json:
            session.write_json_lines([{"url": url, "pipelines": sorted(offered), "pid": os.getpid()}])
        else:
            session.note(f"serving {', '.join([*sorted(offered), *(['agents outside'] if agents else [])])} at {url}")
        await stopped.wait()


@contextlib.asynccontextmanager
async def served(
    session: Session,
    client: Client,
    offered: Mapping[str, Offer],
    options: AccessOptions,
    access: Access,
    agents: OutsideAgents | None = None,
    orders: Orders | None = None,
) -> AsyncIterator[str]:
    """Serve pipelines while the context is open, and yield the public address."""
    push_to, keyring = options.push or [], session.keyring
    chosen = contextlib.nullcontext(options.port) if options.port else held_port(host=options.host)
    with chosen as port:  # the card names it before it is served
        url = (options.url or f"http://{options.host}:{port}").rstrip("/")
        parts = ServiceParts(client, offered, access, url, session.artifacts, agents, keyring, push_to, orders)
        app = service(parts)
    async with serve_service(app, host=options.host, port=port):
        yield url


def make_offers(pipelines: Sequence[str], file: Path | None, task_queue: str) -> dict[str, Offer]:
    """Return what callers may start: from the arguments, and from a file."""
    offered: dict[str, Offer] = {}
    for name in pipelines:
        known = pipelines_in(Path(name)) if name.endswith(".py") else {name: ""}
        offered |= {pipeline: Offer(pipeline, task_queue, text) for pipeline, text in known.items()}
    if file is not None:
        try:
            tables: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
            offered |= {name: _read_offer(name, table, task_queue) for name, table in tables.items()}
        except (OSError, ValueError) as error:
            raise typer.BadParameter(f"{file}: {error}", param_hint="--offers") from None
    if not offered:
        raise typer.BadParameter("name a pipeline that callers may start, or a file with some", param_hint="PIPELINE")
    return offered


def _read_offer(name: str, table: Any, task_queue: str) -> Offer:
    expected = f"expected a table [{name}] with description, task_queue and params"
    if not isinstance(table, dict):
        raise ValueError(f"{name!r} is not a table; {expected}")
    if unknown := table.keys() - {"description", "task_queue", "params"}:
        raise ValueError(f"{name!r} has {', '.join(sorted(unknown))}; {expected}")
    params = table.get("params")
    if params is not None and not isinstance(params, dict):
        raise ValueError(f"params of {name!r} is not a JSON Schema; {expected}")
    offer = Offer(name, str(table.get("task_queue", task_queue)), str(table.get("description", "")), params)
    try:
        _ = offer.gate
    except ValueError as error:
        raise ValueError(f"params of {name!r} is not a JSON Schema: {str(error).partition(chr(10))[0]}") from None
    return offer


def own_tokens() -> Path:
    """Return the file of this machine's own token; makes it if it is missing."""
    if not TOKENS.exists():
        TOKENS.parent.mkdir(parents=True, exist_ok=True)
        row = f"{json.dumps(current_user())} = {json.dumps(secrets.token_urlsafe(24))}\n"
        with contextlib.suppress(FileExistsError), open(TOKENS, "x", encoding="utf-8", opener=_open_private) as file:
            file.write(row)
    return TOKENS


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
