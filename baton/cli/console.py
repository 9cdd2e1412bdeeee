"""`baton console`: the web console, until Ctrl-C."""

import asyncio
import contextlib
import os
import signal
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
from temporalio.client import Client

from baton.cli.options import ForceOption, check_new
from baton.cli.output import plain
from baton.cli.session import Session, command, user
from baton.cli.targets import RunArgument, Target
from baton.client import ChainHead, Ledger, LedgerOptions
from baton.errors import BatonError
from baton.keys.store_keyring import Keyring
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

try:
    from baton.console.app import DEFAULT_PORT, serve_console
    from baton.console.report import report as run_report
    from baton.console.security import Access, Links, Proxy, Role
    from baton.console.sources import Evidence, Places, Sources
except ModuleNotFoundError as error:
    raise BatonError(f"`baton console` needs {error.name}: pip install 'temporal-baton[console]'") from error

_ROLES = ", ".join(role.name.lower() for role in Role)
_STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@command
async def console(
    session: Session,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: a free one.")] = DEFAULT_PORT,
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
    printed when it was used. Under --people nobody needs a link: a proxy names people and their groups in headers,
    which count from its declared addresses alone. Declare only a proxy that removes them from what callers send.
    """
    if not _is_loopback(host) and url is None:
        raise typer.BadParameter(f"{host!r} is reached from other machines; say by which address", param_hint="--url")
    if url is not None and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc):
        raise typer.BadParameter(f"{url!r} is not an address such as https://baton.example.org", param_hint="--url")
    if people is not None and url is None:
        raise typer.BadParameter("say by which address browsers reach the proxy", param_hint="--url")
    links = None if people else Links(user(), _role(role, "--role"), used=lambda path: _announce(session, base, path))
    access = Access(links=links, proxy=_proxy(people) if people else None, url=url)
    sources = sources_of(session, ui, evidence_of(session, ledger, name, keys))
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    async with serve_console(sources, access, host=host, port=port) as bound:
        base = url.rstrip("/") if url else bound
        for number in _STOPPING:
            with contextlib.suppress(NotImplementedError):  # on Windows
                loop.add_signal_handler(number, ended.set)
        _announce(session, base, links.path if links else "/")
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
    check_new(output, force, "--output")
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


def _announce(session: Session, base: str, path: str) -> None:
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
    """Return the proxy that a file declares."""
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
