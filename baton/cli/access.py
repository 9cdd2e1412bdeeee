"""Who may call a service of this machine, and what ends it: shared by the commands that serve."""

import asyncio
import contextlib
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import typer

from baton.cli.session import STOP_SIGNALS
from baton.client import Role
from baton.client.faces import Proxy
from baton.wire.text import is_loopback

ROLES = ", ".join(role.name.lower() for role in Role)


def set_on_stop(stopped: asyncio.Event) -> None:
    """Set an event on every signal that stops a service."""
    for number in STOP_SIGNALS:
        with contextlib.suppress(NotImplementedError):  # on Windows
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)


def check_address(host: str, url: str | None) -> None:
    """Refuse an address that other machines can reach without its public name, and a name that is none."""
    if not is_loopback(host) and url is None:
        raise typer.BadParameter(f"other machines can reach {host!r}; give its public address", param_hint="--url")
    if url is not None and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc):
        raise typer.BadParameter(f"{url!r} is not an address such as https://baton.example.org", param_hint="--url")


def parse_role(name: str, hint: str) -> Role:
    """Return the role that an option or a file names."""
    try:
        return Role.named(name)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=hint) from None


def read_proxy(file: Path) -> Proxy:
    """Return the proxy that a file declares."""
    try:
        settings: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="--people") from None
    addresses, roles = settings.pop("addresses", None), settings.pop("roles", None)
    user_header, groups_header = settings.pop("user", "X-Forwarded-User"), settings.pop("groups", "X-Forwarded-Groups")
    sign_out = str(settings.pop("sign_out", ""))
    expected = "expected addresses = [\"10.0.0.5\"], and a table [roles] with a role for each group, '*' for everybody"
    if settings or not addresses or not isinstance(addresses, list) or not isinstance(roles, dict) or not roles:
        raise typer.BadParameter(f"{file}: {expected}", param_hint="--people")
    group_roles = {group: parse_role(str(role), "--people") for group, role in roles.items()}
    if sign_out and urlsplit(sign_out).scheme not in ("", "http", "https"):
        raise typer.BadParameter(f"{file}: sign_out is not an address such as /oauth2/sign_out", param_hint="--people")
    own = [str(address) for address in addresses]
    return Proxy.at(own, str(user_header), str(groups_header), group_roles, sign_out)
