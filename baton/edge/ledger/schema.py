"""Making and upgrading the ledger's tables, and the rights to them.

A SQLite ledger is migrated when it is opened. A Postgres ledger is migrated by its owner, once, before the
workers start: theirs is a role that could not do it (`baton.edge.ledger.postgres`).
"""

import re

from baton.edge.ledger.database import Connection, Database, scalar
from baton.edge.ledger.migrations import MIGRATIONS
from baton.protocol.ledger_errors import LedgerError, LedgerSchemaError

VERSION = max(MIGRATIONS)
"""The revision of the tables that this version of Baton works with."""
TABLES = (
    "handoff_audit_ledger",
    "handoff_audit",
    "handoff_audit_content",
    "handoff_audit_segment",
    "handoff_audit_checkpoint",
)
VERSION_TABLE = "handoff_audit_version"

_ROLE = re.compile(r"[a-z_][a-z0-9_$]{0,62}")
_KEPT = "handoff_audit_segment"
_HAS_TABLE = {
    "sqlite": "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?",
    "postgresql": "SELECT 1 WHERE to_regclass(?) IS NOT NULL",
}
_OWNER = (
    "SELECT CAST(pg_get_userbyid(relowner) AS TEXT) FROM pg_class"
    " WHERE oid = to_regclass(?) AND NOT pg_has_role(relowner, 'USAGE')"
)
"""The owner of a table, if the role that asks cannot act as it."""


async def migrate(
    database: Database, *, to: str = VERSION, writer: str | None = None, keeper: str | None = None
) -> None:
    """Bring the tables of a ledger to the newest revision; what is there already is left as it is.

    Several processes may do this at once: one does it, the others find it done.

    Args:
        database: The ledger's database, opened as its owner.
        to: A revision, by default the newest.
        writer: On Postgres, the role that may insert and select from now on, and nothing else.
        keeper: On Postgres, the role that may also seal segments and delete the bytes they hold.

    Raises:
        LedgerSchemaError: The tables are newer than this version of Baton.
        LedgerError: The database refused, or cannot be reached; or rights shall be given by another than the owner.
    """

    def work(connection: Connection) -> None:
        if database.dialect == "postgresql":
            connection.rows("SELECT pg_advisory_xact_lock(hashtextextended('handoff_audit_migration', 0))")
        _upgrade(connection, to)
        if writer is not None:
            _grant(connection, writer, _WRITER)
        if keeper is not None:
            _grant(connection, keeper, _WRITER | _KEEPER)

    await database.write(work)


async def revision(database: Database) -> str | None:
    """Return the revision of a ledger's tables, or None if there are none."""
    return await database.read(_revision)


def check_revision(found: str | None, where: str, dialect: str) -> None:
    """Make sure that the tables are those of this version; a file gets its own from the worker that opens it.

    Raises:
        LedgerSchemaError: They are not.
    """
    in_file = dialect == "sqlite"
    if found is None:
        makes = "a worker that opens it makes them" if in_file else "its owner makes them by `baton audit migrate`"
        raise LedgerSchemaError(
            f"the ledger at {where!r} has no tables; {makes} if it is new, or "
            "restore it with all of its files if it had records"
        )
    if found != VERSION:
        migrates = "a worker that opens it migrates it" if in_file else "its owner migrates it by `baton audit migrate`"
        raise LedgerSchemaError(
            f"the ledger at {where!r} has tables of revision {found!r}, this version of Baton works with {VERSION!r}; "
            f"{migrates}, or upgrade temporal-baton if the ledger is the newer one"
        )


def name_of(connection: Connection) -> str | None:
    """Return the name that a ledger got when it was first opened, or None before that."""
    name: str | None = scalar(connection, "SELECT name FROM handoff_audit_ledger")
    return name


def bind_name(connection: Connection, name: str) -> str | None:
    """Give a new ledger its name, and return the one it has: every record carries it, so an old one keeps its own."""
    unnamed = "NOT EXISTS (SELECT 1 FROM handoff_audit_ledger)"
    given = f"INSERT INTO handoff_audit_ledger (one, name) SELECT 1, ? WHERE {unnamed} ON CONFLICT DO NOTHING"
    connection.rows(given, name)  # another worker may be giving it one, which this waits for
    return name_of(connection)


def check_name(found: str | None, name: str, where: str) -> None:
    """Make sure that a ledger that has a name has this one.

    Raises:
        LedgerError: It has another one.
    """
    if found not in (None, name):
        raise LedgerError(
            f"the ledger at {where!r} is named {found!r}, not {name!r}; open it under its own name: "
            "BATON_LEDGER_NAME, `--ledger-name`, or `Safeguards(name=…)`"
        )


_WRITER = frozenset(f"GRANT SELECT, INSERT ON {name} TO {{role}}" for name in TABLES if name != _KEPT) | {
    f"GRANT SELECT ON {_KEPT}, {VERSION_TABLE} TO {{role}}"
}
_KEEPER = frozenset({f"GRANT INSERT ON {_KEPT} TO {{role}}", "GRANT DELETE ON handoff_audit_content TO {role}"})


def _grant(connection: Connection, role: str, statements: frozenset[str]) -> None:
    """Give a role these rights, and take every other one from it."""
    if connection.dialect != "postgresql":
        raise LedgerError(f"only Postgres has roles; leave {role!r} out for a ledger in a file")
    if not _ROLE.fullmatch(role):
        raise ValueError(f"{role!r} is not the name of a role: lower-case letters, digits and _ are")
    _check_owner(connection)
    tables = ", ".join([*TABLES, VERSION_TABLE])
    connection.rows(f"REVOKE ALL ON {tables} FROM {role}")
    for statement in sorted(statements):
        connection.rows(statement.format(role=role))


def _check_owner(connection: Connection) -> None:
    """Make sure that rights can be given: from anybody but an owner Postgres takes a GRANT with a mere warning."""
    for name in (*TABLES, VERSION_TABLE):
        owner = scalar(connection, _OWNER, name)
        if owner is not None:
            raise LedgerError(
                f"the table {name!r} belongs to {owner!r}, and only its owner can give rights on it; migrate as {owner}"
            )


def _revision(connection: Connection) -> str | None:
    if not connection.rows(_HAS_TABLE[connection.dialect], VERSION_TABLE):
        return None
    found: str | None = scalar(connection, f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608 - our own name
    return found


def _upgrade(connection: Connection, to: str) -> None:
    found = _revision(connection)
    if found is None:
        connection.rows(f"CREATE TABLE {VERSION_TABLE} (version_num TEXT NOT NULL PRIMARY KEY)")
        connection.rows(f"INSERT INTO {VERSION_TABLE} VALUES ('')")  # noqa: S608 - our own name
    elif found not in MIGRATIONS:
        raise LedgerSchemaError(
            f"the ledger's tables are of revision {found!r}, which this version of Baton does not know; it knows "
            f"{', '.join(MIGRATIONS)}: upgrade temporal-baton"
        )
    for number, statements in MIGRATIONS.items():
        if (found or "") < number <= to:
            for statement in statements(connection.dialect):
                connection.rows(statement)
            connection.rows(f"UPDATE {VERSION_TABLE} SET version_num = ?", number)  # noqa: S608 - our own name
