"""From the name of a place to a database: a file is SQLite, `postgresql://…` is Postgres."""

import re
from pathlib import Path

from baton.ledger.errors import LedgerError
from baton.ledger.store_database import Database, shown
from baton.ledger.store_sqlite import SqliteDatabase

_URL = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)  # two letters at least: C:\ is a drive, not a scheme
_SQLITE = "sqlite:///"
_POSTGRES = re.compile(
    r"postgres(ql)?://([^@/?#\[\]]*@)?"  # the account
    r"([^@/?#:,]*|\[[^@/?#\]]*\])(:\d+)?(,([^@/?#:,]*|\[[^@/?#\]]*\])(:\d+)?)*"  # hosts, each with its port
    r"(/[^@?#]*)?(\?([^=&@#]+=[^&#]*(&|$))*)?"  # the database, and what else is set
)
"""An address that is read as it was meant: a sign of the password's could end the account, or begin another part."""


def open_database(where: str | Path, *, create: bool = True) -> Database:
    """Return the database at a path or a URL; nothing is opened yet.

    Args:
        where: A file (a path, or `sqlite:///` and a path), or `postgresql://user:password@host/database`.
        create: Make a file that is not there.

    Raises:
        LedgerError: The driver for Postgres is not installed.
        ValueError: The URL is of another database, or a sign in it, as a password's, keeps it from being read.

    Example:
        >>> open_database("sqlite:///audit/ledger.db").dialect
        'sqlite'
    """
    url = str(where)
    if isinstance(where, Path) or not _URL.match(url):
        return SqliteDatabase(Path(where), create=create)
    if url.startswith(_SQLITE):
        return SqliteDatabase(Path(url.removeprefix(_SQLITE)), create=create)
    if url.startswith(("postgresql:", "postgres:")):
        if not _POSTGRES.fullmatch(url):
            raise ValueError(
                f"the address {shown(url)!r} cannot be read; expected postgresql://user:password@host:port/database, "
                "with signs such as @ / ? # [ in the password percent-encoded: %40 %2F %3F %23 %5B"
            )
        try:
            # The driver is an extra.
            from baton.ledger.store_postgres import PostgresDatabase  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise LedgerError(
                f"a ledger at {shown(url)!r} needs a driver: pip install 'temporal-baton[postgres]'"
            ) from error
        return PostgresDatabase(url)
    raise ValueError(f"a ledger is a file or postgresql://…; {url.partition(':')[0]!r} is neither")
