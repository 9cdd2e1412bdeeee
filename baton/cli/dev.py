"""`baton dev`, `baton console` and `baton report`: a local server and console, and a run as one page."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from temporalio.client import Client

from baton.cli.ledger_sources import (
    Anchors,
    Keys,
    KeysOption,
    LedgerOption,
    NameOption,
    find_witness,
    ledger_name,
    ledger_place,
)
from baton.cli.options import ForceOption, VerboseOption, refuse_overwrite
from baton.cli.output import make_table, plain
from baton.cli.personal import vault_path
from baton.cli.session import KEYS_FOLDER, STOP_SIGNALS, RunArgument, Session, Target, command, current_user
from baton.cli.supervision import (
    WorkerProgram,
    absolute_store,
    find_worker,
    supervised,
    worker_environment,
    worker_module,
)
from baton.client import DEFAULT_TASK_QUEUE, ChainHead, ClientPlugin, Ledger, LedgerOptions, Vault, VaultOptions
from baton.codec.encryption import is_encryption_enabled
from baton.devserver import HOST, DevServer, DevServerOptions
from baton.devserver.processes import held_port
from baton.errors import BatonError, ServerError
from baton.keys.store_keyring import DEVELOPMENT_FILE, Keyring
from baton.keys.store_keys import PublicKeys
from baton.lab import FOLDER

try:
    from baton.cli.access import ROLES, check_address, parse_role, read_proxy, set_on_stop
    from baton.cli.serve import TOKENS, AccessOptions, make_offers, served
    from baton.client.faces import SERVE_PORT, installed_protocols
    from baton.codec.server import codecs_for, serve_codec
    from baton.console.app import DEFAULT_PORT as DEFAULT_CONSOLE_PORT
    from baton.console.app import serve_console
    from baton.console.report import report as run_report
    from baton.console.security import Access, Links, form_secret
    from baton.console.sources import Evidence, Sources, TemporalUi
except ModuleNotFoundError as error:
    raise BatonError(f"this command needs {error.name}: pip install 'temporal-baton[dev-server]'") from error

DEFAULT_PORT = 7233
DEFAULT_UI_PORT = 8233
DATABASE = Path(".baton/dev/temporal.db")
_FILE_WORKER = "baton.worker"  # serves the pipelines of a file or package


@command
async def console(
    session: Session,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: a free one.")] = DEFAULT_CONSOLE_PORT,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The public address, if browsers use another one."),
    ] = None,
    role: Annotated[str, typer.Option(metavar="ROLE", help=f"The role of the link: {ROLES}.")] = "operator",
    people: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="For a proxy that authenticates people: a TOML file with its addresses, headers and roles.",
        ),
    ] = None,
    ui: Annotated[str | None, typer.Option(metavar="URL", help="The Temporal UI to link to.")] = None,
    ledger: LedgerOption = None,
    name: NameOption = None,
    keys: KeysOption = None,
) -> None:
    """Serve the web console: runs, their relay, pending decisions.

    It listens on this machine only and prints a link that signs your browser in. Each link works once; after its use
    the next one is printed. With --people no link is needed: a proxy names people and their groups in headers,
    which are trusted from its declared addresses only. The proxy must remove such headers from incoming requests.
    """
    check_address(host, url)
    if people is not None and url is None:
        raise typer.BadParameter("give the address by which browsers reach the proxy", param_hint="--url")
    signer, grants = current_user(), parse_role(role, "--role")
    links = None if people else Links(signer, grants, used=lambda path: _print_link(session, base, path))
    proxy = read_proxy(people) if people else None
    access = Access(links=links, proxy=proxy, url=url, secret=form_secret(session.keyring))
    sources = make_sources(session, ui, make_evidence(session, ledger, name, keys))
    stopped = asyncio.Event()
    async with serve_console(sources, access, host=host, port=port) as local_url:
        base = url.rstrip("/") if url else local_url
        set_on_stop(stopped)
        _print_link(session, base, links.path if links else "/")
        await stopped.wait()


@command
async def report(
    session: Session,
    run: RunArgument,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", dir_okay=False, help="The file to write.")],
    force: ForceOption = False,
) -> None:
    """Write a run as one self-contained HTML file.

    It loads nothing from elsewhere and prints well: for a ticket, a regulator, an archive.
    """
    refuse_overwrite(output, force, "--output")
    target = Target.of(run)
    with session.progress("reading the history"):
        text = await run_report(make_sources(session), target.workflow_id, target.run_id)
    output.write_text(text, encoding="utf-8")
    if session.json:
        session.write_json({"file": str(output), "bytes": len(text.encode())})
    else:
        session.show(plain(f"wrote {output}"))


def make_evidence(
    session: Session, ledger: str | None = None, name: str | None = None, keys: Path | None = None
) -> Evidence:
    """Return the ledger of the options and the environment, with the keys and anchors to verify it.

    All are read when they are used: the first worker makes them, and keys are rotated.
    """
    own_name, place = ledger_name(name, session.connection), ledger_place(ledger, session.connection)
    artifacts = session.artifacts

    def open_ledger() -> Ledger:
        signer = Keys.of(keys).signer
        return Ledger(place, LedgerOptions(name=own_name, signer=signer, artifacts=artifacts, create=False))

    def read_keys() -> tuple[PublicKeys | None, Sequence[Mapping[str, Any]]]:
        public_keys = Keys.of(keys)
        return public_keys.public, public_keys.as_jwks

    def read_anchors() -> tuple[Sequence[ChainHead], Sequence[Any]]:
        anchors = Anchors.of(find_witness(None, session.connection))
        return anchors.heads, anchors.checkpoints

    return Evidence(open_ledger, own_name, read_keys, read_anchors)


def make_sources(session: Session, ui: str | None = None, evidence: Evidence | None = None) -> Sources:
    """Return the console's sources, from the options and the environment."""
    quiet = Session(replace(session.options, json=True))  # without a spinner
    namespace = session.connection.settings()["namespace"]
    return Sources(quiet.client, session.artifacts, TemporalUi(ui, namespace), evidence, open_vault, FOLDER)


def open_vault() -> Vault:
    """Return the vault that the environment names."""
    return Vault(vault_path(), Keyring.from_environment(os.environ), VaultOptions(create=False))


def _print_link(session: Session, base: str, path: str) -> None:
    if session.json:
        session.write_json_lines([{"url": base, "link": f"{base}{path}", "pid": os.getpid()}])
    else:
        session.show(plain(f"console  {base}{path}", "bold cyan"))
        session.out.file.flush()


@dataclass(frozen=True)
class _Setup:
    """What `baton dev` starts."""

    server: DevServerOptions
    worker_arguments: Sequence[str]
    watched: Path | None
    artifacts: str
    keyring: Keyring | None
    console_port: int | None
    offers: Sequence[str]
    verbose: bool


@command
async def dev(
    session: Session,
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE|NAME]",
            show_default=False,
            help="A Python file or package whose pipelines and stages are served, and reloaded when it changes. "
            "Or the name of an installed pipeline, such as code_review.",
        ),
    ] = None,
    worker: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The worker program. [./worker.py, if it exists]")
    ] = None,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Start no worker.")] = False,
    ephemeral: Annotated[bool, typer.Option("--ephemeral", help="Keep the state in memory only.")] = False,
    database: Annotated[Path, typer.Option(metavar="FILE", help="The file that holds the state.")] = DATABASE,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The server's port; 0: a free one.")] = DEFAULT_PORT,
    ui_port: Annotated[int, typer.Option(min=0, max=65535, help="The UI's port; 0: a free one.")] = DEFAULT_UI_PORT,
    console_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help=f"The console's port. [{DEFAULT_CONSOLE_PORT}, or a free one]")
    ] = None,
    verbose: VerboseOption = False,
) -> None:
    """Run a Temporal server, its UI, the console and your worker, until Ctrl-C.

    With FILE, a worker serves all pipelines and stages of that file or package, and restarts when its code changes;
    a run that does not fit the new code is suspended until the code fits. With NAME, the worker is that of an
    installed package. Without either, it is ./worker.py.

    The server listens on this machine only and keeps its state in .baton/dev, so runs resume after a restart. The UI
    shows compressed payloads through a codec server. With BATON_ENCRYPT=true, workers with a BatonPlugin() encrypt
    everything that the server stores, and the codec server decrypts it for the UI, with the keys of this machine
    (.baton/keys.toml, created if missing). The worker gets the server's address from its environment, and is
    restarted when it dies. Ctrl-C or SIGTERM stops everything; a second one does not wait for stages in progress.
    """
    namespace = session.options.namespace or os.environ.get("TEMPORAL_NAMESPACE") or "default"
    state = None if ephemeral else database
    options = DevServerOptions(database=state, port=port, ui_port=ui_port, namespace=namespace)
    keyring = Keyring.from_environment(os.environ, KEYS_FOLDER) if is_encryption_enabled(os.environ) else None
    if code is not None and (worker is not None or no_worker):
        raise BatonError("FILE and NAME bring their own worker; leave out --worker and --no-worker")
    arguments = () if no_worker else _worker_arguments(code, worker)
    watched = Path(code) if code is not None and arguments[1] == _FILE_WORKER else None
    offered = [code] if watched is not None and code is not None and code.endswith(".py") else []
    setup = _Setup(options, arguments, watched, session.options.store, keyring, console_port, offered, verbose)
    with _cancel_on_signals(session) as received:
        try:
            await _serve(session, setup)
        except asyncio.CancelledError:
            if not received:
                raise
    _report_stop(session, "stopped")


def _worker_arguments(code: str | None, worker: Path | None) -> Sequence[str]:
    """Return Python's arguments for the worker; empty if there is none."""
    if code is not None and Path(code).exists():
        return ("-m", _FILE_WORKER, str(Path(code).resolve()))
    if code is not None:
        return ("-m", worker_module(code))
    script = find_worker(worker)
    return () if script is None else (str(script),)


async def _serve(session: Session, setup: _Setup) -> None:
    """Start everything, and run until cancelled or the server dies."""
    async with contextlib.AsyncExitStack() as stack:
        # The codec server starts before the UI and must know the UI's port, which is held so that it is not taken.
        ui_port = setup.server.ui_port or stack.enter_context(held_port(host=HOST))
        origins = [f"http://{name}:{ui_port}" for name in (HOST, "localhost")]
        endpoint = await stack.enter_async_context(serve_codec(codecs_for(setup.keyring), origins=origins))
        with session.progress("starting the server"):
            server = DevServer(replace(setup.server, ui_port=ui_port, codec_endpoint=endpoint))
            await stack.enter_async_context(server)
        links = Links(current_user(), used=lambda path: session.note(f"console, next link: {address}{path}"))
        sources = _sources(session, setup, server)
        console = serve_console(
            sources, Access(links=links), host=HOST, port=_free_port(setup.console_port, DEFAULT_CONSOLE_PORT)
        )
        address = await stack.enter_async_context(console)
        offered = await stack.enter_async_context(_offering(session, setup, sources))
        _announce(session, setup, server, f"{address}{links.path}", offered)
        if setup.worker_arguments:
            environment = worker_environment(
                os.environ,
                address=server.address,
                namespace=setup.server.namespace,
                artifacts=absolute_store(setup.artifacts),
            )
            environment |= _keys_environment(setup)
            environment |= {"BATON_LOG_LEVEL": "DEBUG"} if setup.verbose else {}
            program = WorkerProgram(setup.worker_arguments, environment, setup.watched)
            await stack.enter_async_context(supervised(program, session.note))
        code = await server.process.wait()
        log = setup.server.log_file
        raise ServerError(f"the Temporal server exited with code {code}; its log: {log or 'none was kept'}")


@contextlib.asynccontextmanager
async def _offering(session: Session, setup: _Setup, sources: Sources) -> AsyncIterator[str | None]:
    """Serve the pipelines of the file to other programs, and yield the address; None without a file or the extra."""
    if not setup.offers or not installed_protocols():
        yield None
        return
    client = await sources.client()
    offered = make_offers(setup.offers, None, os.environ.get("BATON_TASK_QUEUE", DEFAULT_TASK_QUEUE))
    options = AccessOptions(port=_free_port(None, SERVE_PORT))
    async with served(session, client, offered, options, options.access(session.keyring)) as url:
        yield url


@contextlib.contextmanager
def _cancel_on_signals(session: Session) -> Iterator[list[int]]:
    """Cancel the current task on every stop signal; yields the list of received signals."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None  # noqa: S101 - a command runs in a task
    received: list[int] = []

    def stop(signal_number: int) -> None:
        received.append(signal_number)
        task.cancel()
        if len(received) == 1:
            _report_stop(session, "stopping once stages in progress finish; press Ctrl-C again to stop at once")

    with contextlib.ExitStack() as handlers:
        for signal_number in STOP_SIGNALS:
            with contextlib.suppress(NotImplementedError):  # Windows: only Ctrl-C stops
                loop.add_signal_handler(signal_number, stop, signal_number)
                handlers.callback(loop.remove_signal_handler, signal_number)
        yield received


def _report_stop(session: Session, text: str) -> None:
    """Print a line to stderr, unless the terminal was closed."""
    with contextlib.suppress(OSError, SystemExit):  # rich raises SystemExit for a closed pipe
        session.err.print(plain(text, "dim"))


def _free_port(port: int | None, default: int) -> int:
    """Return the given port, the default one, or 0 if the default is taken."""
    if port is not None:
        return port
    try:
        with held_port(default, host=HOST):
            return default
    except OSError:
        return 0


def _sources(session: Session, setup: _Setup, server: DevServer) -> Sources:
    """Return the console's sources: this server, its worker's artifacts and ledger."""
    namespace = setup.server.namespace

    async def connect() -> Client:
        encrypt = is_encryption_enabled(os.environ)
        plugin = ClientPlugin(session.artifacts, keys=session.keyring, encrypt=encrypt)
        return await Client.connect(server.address, namespace=namespace, plugins=[plugin], runtime=session.runtime)

    return Sources(
        connect, session.artifacts, TemporalUi(server.ui_url, namespace), make_evidence(session), open_vault, FOLDER
    )


def _announce(session: Session, setup: _Setup, server: DevServer, console: str, offered: str | None) -> None:
    """Print the addresses, and how to stop."""
    options, worker = setup.server, setup.worker_arguments[-1] if setup.worker_arguments else None
    if session.json:
        ready = {
            "address": server.address,
            "ui": server.ui_url,
            "console": console,
            "serve": offered,
            "codec": server.options.codec_endpoint,
            "namespace": options.namespace,
            "database": str(options.database) if options.database else None,
            "worker": worker,
            "encrypted": setup.keyring is not None,
            "pid": os.getpid(),
        }
        session.write_json_lines([ready])
        return
    state = f"state in {options.database}" if options.database else "state in memory only"
    table = make_table("", "")
    table.add_row("console", plain(console, "bold cyan"))
    if setup.offers and offered is None:
        table.add_row("service", plain("none, without one of the extras mcp, a2a and ag-ui"))
    if offered is not None:
        protocols = ", ".join(installed_protocols())
        table.add_row("service", plain(f"{offered}, over {protocols}, with the token in {TOKENS}"))
    table.add_row("UI", plain(f"{server.ui_url}", "bold cyan"))
    table.add_row("server", plain(f"{server.address}, namespace {options.namespace!r}, {state}"))
    if setup.keyring is not None:
        machine_keys = f"this machine's keys, {KEYS_FOLDER / DEVELOPMENT_FILE}"
        keys = machine_keys if setup.keyring.is_development else "your keys"
        table.add_row("payloads", plain(f"workers with a BatonPlugin() encrypt with {keys}; the UI decrypts"))
        table.add_row("", "to start runs in another terminal, set BATON_ENCRYPT=true there too")
    table.add_row("codec", plain(f"{server.options.codec_endpoint}, for services and the temporal command"))
    if server.address != f"{HOST}:{DEFAULT_PORT}":
        table.add_row("commands", plain(f"in another terminal first: export TEMPORAL_ADDRESS={server.address}"))
    table.add_row("worker", plain(worker or f"none; start yours with TEMPORAL_ADDRESS={server.address}"))
    table.add_row("stop", "Ctrl-C")
    session.show(table)
    session.out.file.flush()


def _keys_environment(setup: _Setup) -> dict[str, str]:
    """Return the variable with which a worker in another folder finds this machine's keys."""
    if setup.keyring is None or not setup.keyring.is_development or os.environ.get("BATON_KEYS"):
        return {}
    return {"BATON_KEYS": str((KEYS_FOLDER / DEVELOPMENT_FILE).absolute())}
