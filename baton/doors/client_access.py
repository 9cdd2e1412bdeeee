"""Who may call over HTTP: tokens, proxies that authenticate, roles, rates; the console uses the same.

Not checked here: that a proxy really authenticated the person whom it names. Declare only proxies that overwrite the
identity headers of their callers.
"""

import re
import time
import tomllib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any, Self
from urllib.parse import SplitResult, urlsplit

from baton.codec.server import has_bearer_token
from baton.core.people import name_refusal
from baton.errors import BatonError
from baton.lazy import needs_extra
from baton.wire.text import is_loopback

with needs_extra("console", __name__):
    from starlette.requests import Request

MIN_TOKEN_LENGTH = 16
"""The minimum length of a token; shorter ones can be guessed."""
_HEADER_TEXT = re.compile("[!-~]*")
_MAX_BUCKETS = 10_000
_TOKENS_FORM = 'expected lines such as ann = "…", or tables [ann] with token, and role, sees_all or decides'


class Role(IntEnum):
    """What a person may do. Each role includes those below it."""

    VIEWER = 1
    """Look at runs and records."""
    DECIDER = 2
    """Decide approvals and handoffs that wait."""
    OPERATOR = 3
    """Start, cancel, roll back and fork runs, read transcripts, and open personal data."""

    @classmethod
    def named(cls, name: str) -> "Role":
        """Return the role with a name, in any case.

        Raises:
            ValueError: It is not a role.
        """
        try:
            return cls[name.upper()]
        except KeyError:
            roles = ", ".join(role.name.lower() for role in cls)
            raise ValueError(f"{name!r} is not a role; the roles are {roles}") from None


@dataclass(frozen=True)
class Caller:
    """An authenticated caller.

    Attributes:
        name: Recorded with each run that they start and each decision.
        role: What they may do.
        sees_all: Whether the runs of others are theirs too.
        decides: Whether they may answer what their runs ask; a partner's agent should not approve its own order.
    """

    name: str
    role: Role = Role.OPERATOR
    sees_all: bool = False
    decides: bool = True


@dataclass(frozen=True)
class Proxy:
    """The networks and headers of the proxies that authenticate people. Headers from other addresses are ignored."""

    addresses: Sequence[IPv4Network | IPv6Network]
    user_header: str = "x-forwarded-user"  # the person's name
    groups_header: str = "x-forwarded-groups"  # their groups, separated by commas
    # the role of each group; `*` is everybody who is authenticated
    roles: Mapping[str, Role] = field(default_factory=lambda: {"*": Role.VIEWER})
    sign_out: str = ""  # the proxy's own address that ends a person's session there

    @classmethod
    def at(
        cls, addresses: Sequence[str], user: str, groups: str, roles: Mapping[str, Role], sign_out: str = ""
    ) -> "Proxy":
        """Return a proxy with some addresses or networks.

        Raises:
            BatonError: An address is invalid.
        """
        try:
            networks = [ip_network(address) for address in addresses]
        except ValueError as error:
            raise BatonError(f"{error}; name a proxy by its address or network, such as 10.0.0.0/24") from error
        return cls(networks, user.lower(), groups.lower(), roles, sign_out)

    def caller(self, request: Request) -> Caller | None:
        """Return the person whom a declared proxy names, with the highest role of their groups, or None."""
        peer = ip_address(request.client.host) if request.client else None
        if peer is None or not any(peer in network for network in self.addresses if network.version == peer.version):
            return None
        names = request.headers.getlist(self.user_header)
        if len(names) != 1 or not names[0].strip() or not names[0].isprintable():  # a second one is not from the proxy
            return None
        group_names = ",".join(request.headers.getlist(self.groups_header)).split(",")
        groups = {"*", *(group_name.strip() for group_name in group_names if group_name.strip())}
        role = max((role for group, role in self.roles.items() if group in groups), default=None)
        return None if role is None else Caller(names[0].strip(), role)


class Tokens:
    """The bearer tokens of the callers, each with its own.

    Args:
        tokens: Each caller's token: printable ASCII without blanks, `MIN_TOKEN_LENGTH` characters or more.

    Raises:
        ValueError: A token is too short, cannot be sent in a header, or two callers have the same.
    """

    def __init__(self, tokens: Mapping[Caller, str]) -> None:
        for caller, token in tokens.items():
            if refusal := name_refusal(caller.name):
                raise ValueError(f"{caller.name!r}: {refusal}")
            if not _HEADER_TEXT.fullmatch(token):
                raise ValueError(
                    f"the token of {caller.name!r} has blanks or other characters that a header cannot carry"
                )
            if len(token) < MIN_TOKEN_LENGTH:
                raise ValueError(
                    f"the token of {caller.name!r} is shorter than {MIN_TOKEN_LENGTH} characters; make it at random"
                )
        if len(set(tokens.values())) < len(tokens):
            raise ValueError("two callers have the same token; give each its own")
        self._tokens = dict(tokens)

    @classmethod
    def read(cls, file: Path) -> Self:
        """Return the tokens of a TOML file: lines such as ``ann = "…"``, or a table for each caller.

        A table has `token`, and may have `role` (operator by default), `sees_all` and `decides`.

        Raises:
            BatonError: The file cannot be read, or has something else.
        """
        try:
            members: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
            tables = {name: {"token": item} if isinstance(item, str) else item for name, item in members.items()}
            tokens = {_read_caller(name, table): table["token"] for name, table in tables.items()}
            if not tokens:
                raise ValueError(f"it names no caller; {_TOKENS_FORM}")
            return cls(tokens)
        except OSError as error:
            raise BatonError(f"{file} cannot be read ({error.strerror}); {_TOKENS_FORM}") from None
        except ValueError as error:
            raise BatonError(f"{file}: {error}") from None

    def caller(self, request: Request) -> Caller | None:
        """Return the caller whose token a request carries; every token is compared, so timing reveals nothing."""
        matches = [caller for caller, token in self._tokens.items() if has_bearer_token(request, token)]
        return matches[0] if matches else None


def _read_caller(name: str, table: Any) -> Caller:
    if not isinstance(table, dict) or not isinstance(table.get("token"), str):
        raise ValueError(f"{name!r} has no token; {_TOKENS_FORM}")
    if unknown := table.keys() - {"token", "role", "sees_all", "decides"}:
        raise ValueError(f"{name!r} has {', '.join(sorted(unknown))}; {_TOKENS_FORM}")
    role = Role.named(str(table.get("role", "operator")))
    return Caller(name, role, table.get("sees_all") is True, table.get("decides", True) is True)


@dataclass(frozen=True)
class Rate:
    """A rate limit: the size of a burst, and how many per second after it."""

    burst: float
    per_second: float


UNKNOWN = Rate(60, 5)
"""The rate of an address that has not authenticated."""
CALLS = Rate(200, 40)
"""The rate of one caller of a service."""


class Rates:
    """Token buckets, one for each caller and rate."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, Rate], tuple[float, float]] = OrderedDict()

    def take(self, who: str, rate: Rate) -> bool:
        """Take a token; return False if the bucket is empty."""
        now = self._clock()
        tokens, updated = self._buckets.pop((who, rate), (rate.burst, now))
        tokens = min(rate.burst, tokens + (now - updated) * rate.per_second)
        self._buckets[who, rate] = (tokens - 1 if tokens >= 1 else tokens, now)
        while len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return tokens >= 1


@dataclass(frozen=True)
class Access:
    """Who may call a service: by tokens, or through a proxy that authenticates people; exactly one of them.

    Attributes:
        tokens: The callers' tokens.
        proxy: The proxies that name people.
        origins: Other sites whose pages may call it in a browser, such as `https://chat.example.com`.
        rate: How often one caller may call.
    """

    tokens: Tokens | None = None
    proxy: Proxy | None = None
    origins: Sequence[str] = ()
    rate: Rate = CALLS
    rates: Rates = field(default_factory=Rates, repr=False)

    def __post_init__(self) -> None:
        """Refuse none and both."""
        if (self.tokens is None) is (self.proxy is None):
            raise ValueError("pass either tokens or a proxy")

    def caller(self, request: Request) -> Caller | None:
        """Return the authenticated caller, or None."""
        return self.tokens.caller(request) if self.tokens else self.proxy.caller(request) if self.proxy else None


def served_origin(request: Request, url: SplitResult | None, *, loopback: bool) -> str | None:
    """Return the origin of a request's `Host`, or None if nothing is served under that name (DNS rebinding).

    Args:
        request: The request.
        url: The public address of what is served.
        loopback: Whether this machine's own names are also served.
    """
    host = request.headers.get("host", "")
    if url is not None and host.lower() == url.netloc.lower():
        return f"{url.scheme}://{host}"
    return f"http://{host}" if loopback and is_loopback(_host_name(host)) else None


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
