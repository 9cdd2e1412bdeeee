"""The ledger's tables (`sqlite.sql`, `postgres.sql`), the rights to them, and how records are stored in them.

`handoff_audit` keeps one short row for each record forever; its constraints prevent forks and repeated events. The
record's bytes are in `handoff_audit_content` until a segment of the cold tier holds them. Triggers refuse updates,
deletes, replacements, and records that do not continue their chain. The database's owner can drop the triggers;
signatures and heads outside the ledger reveal what was changed then.

Opening a file creates its tables. The owner of a Postgres database creates them once, before the workers start: the
workers' role cannot (`baton.ledger.store_postgres`).

A record's bytes are one Zstandard frame with a shared dictionary (§9), a readable file beside this one. A released
dictionary never changes; a better one is a new file with a new number.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import import_module, resources
from pathlib import Path
from typing import Any

from baton.keys.claims import HeadVerifier, SignatureCheck
from baton.ledger.chain import ChainEnd
from baton.ledger.proof import Checkpoint
from baton.ledger.records import AuditRecord, ChainLink, Claims, LedgerError, LedgerSchemaError
from baton.ledger.store_database import (
    Connection,
    DamagedRowError,
    Database,
    Row,
    SqliteDatabase,
    hashes,
    scalar,
)
from baton.wire.base64url import to_base64url
from baton.wire.json_values import format_digest
from baton.wire.zstandard import load_dictionary, zstd

TABLES = (
    "handoff_audit_ledger",
    "handoff_audit",
    "handoff_audit_content",
    "handoff_audit_segment",
    "handoff_audit_checkpoint",
)
"""The append-only tables."""
VERSIONS = {"sqlite": "1", "postgresql": "2"}
"""The revision of the tables that this version of Baton works with, by the kind of database."""
VERSION_TABLE = "handoff_audit_version"

_SQL = {"sqlite": "sqlite.sql", "postgresql": "postgres.sql"}
_MONTHS, _MONTHS_FROM = "postgres-2.sql", "1"
"""What upgrades tables of this revision in Postgres."""
_PARTITIONS = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'handoff_audit_content'::regclass"
_WRITER, _KEEPER = ":writer", ":keeper"
"""The placeholders of the roles in the file for Postgres."""
_ROLE = re.compile(r"[a-z_][a-z0-9_$]{0,62}")
_WRITER_COLUMNS = (
    "task_id, sequence, previous_hash, record_hash, event_key, message_hash, recorded_at, key_id, signature"
)
"""The columns that a writer fills."""
_HAS_TABLE = {
    "sqlite": "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?",
    "postgresql": "SELECT 1 WHERE to_regclass(?) IS NOT NULL",
}
_OWNER = (
    "SELECT CAST(pg_get_userbyid(relowner) AS TEXT) FROM pg_class"
    " WHERE oid = to_regclass(?) AND NOT pg_has_role(relowner, 'USAGE')"
)
"""The owner of a table, if the current role cannot act as it."""
_MAY_CHANGE = (
    "SELECT 1 FROM pg_class WHERE oid = to_regclass(?) AND (pg_has_role(?::name, relowner, 'MEMBER')"
    " OR has_any_column_privilege(?::name, oid, 'INSERT, UPDATE, REFERENCES')"
    " OR has_table_privilege(?::name, oid, 'DELETE, TRUNCATE, TRIGGER'))"
)
"""Whether a role may change a table without any grant to it."""
_MAY_CREATE = (
    "SELECT relnamespace::regnamespace::text FROM pg_class"
    " WHERE oid = 'handoff_audit'::regclass AND has_schema_privilege(?::name, relnamespace, 'CREATE')"
)
"""The schema of the tables, if a role may create functions there, which the owner could call by mistake."""


async def migrate(database: Database, *, writer: str | None = None, keeper: str | None = None) -> None:
    """Create missing tables of a ledger, and give these roles their rights."""
    _check_roles(writer, keeper)

    def work(connection: Connection) -> None:
        if database.dialect == "postgresql":
            connection.rows("SELECT pg_advisory_xact_lock(hashtextextended('handoff_audit_migration', 0::bigint))")
        current = _read_revision(connection)
        if current is None:
            _create_tables(connection)
        elif database.dialect == "postgresql" and current == _MONTHS_FROM:
            _check_owner(connection)
            _add_months(connection)
        else:
            check_revision(current, database)
        if writer is not None:
            _grant(connection, writer, _WRITER)
        if keeper is not None:
            _grant(connection, keeper, _KEEPER)

    await revision(database)  # an unreachable database raises the error for reading, not for appending
    database.is_patient = True
    try:
        await database.write(work)
    finally:
        database.is_patient = False


async def revision(database: Database) -> str | None:
    """Return the revision of a ledger's tables, or None without tables."""
    return await database.read(_read_revision)


def check_revision(current: str | None, database: Database) -> None:
    """Raise an error if the tables are missing or of another revision."""
    if current is None:
        in_file = database.dialect == "sqlite"
        remedy = "open it with a worker" if in_file else "create them with `baton audit migrate`"
        raise LedgerSchemaError(
            f"the ledger at {database.where!r} has no tables; {remedy} if it is new, or "
            "restore it with all of its files if it had records"
        )
    needed = VERSIONS[database.dialect]
    if current != needed:
        older = database.dialect == "postgresql" and current == _MONTHS_FROM
        remedy = (
            "its owner upgrades them with `baton audit migrate`"
            if older
            else "install the version of temporal-baton that created it"
        )
        raise LedgerSchemaError(
            f"the ledger at {database.where!r} has tables of revision {current!r}, but this version of Baton needs "
            f"{needed!r}; {remedy}"
        )


def name_of(connection: Connection) -> str | None:
    """Return the name of a ledger, or None before it was first opened."""
    name: str | None = scalar(connection, "SELECT name FROM handoff_audit_ledger")
    return name


def bind_name(connection: Connection, name: str) -> str | None:
    """Name a new ledger, and return the name it has; every record carries it, so it never changes."""
    unnamed = "NOT EXISTS (SELECT 1 FROM handoff_audit_ledger)"
    statement = f"INSERT INTO handoff_audit_ledger (one, name) SELECT 1, ? WHERE {unnamed} ON CONFLICT DO NOTHING"
    connection.rows(statement, name)  # waits for another worker that names the ledger now
    return name_of(connection)


def check_writable(connection: Connection) -> None:
    """Insert no rows, which fails without the right to insert."""
    columns = _WRITER_COLUMNS
    connection.rows(f"INSERT INTO handoff_audit ({columns}) SELECT {columns} FROM handoff_audit WHERE 1 = 0")  # noqa: S608 - our own names


def check_name(current: str | None, name: str, where: str) -> None:
    """Raise an error if the ledger has another name."""
    if current not in (None, name):
        raise LedgerError(
            f"the ledger at {where!r} is named {current!r}, not {name!r}; open it under its own name: "
            "BATON_LEDGER_NAME, `--ledger-name`, or `Safeguards(name=…)`"
        )


def _grant(connection: Connection, role: str, placeholder: str) -> None:
    """Give a role the rights that the file gives to this placeholder, and revoke all others."""
    if connection.dialect != "postgresql":
        raise LedgerError(f"only Postgres has roles; omit {role!r} for a ledger in a file")
    _check_owner(connection)
    tables = [*TABLES, VERSION_TABLE]
    positions = scalar(connection, "SELECT pg_get_serial_sequence('handoff_audit', 'position')")
    partitions = [row[0] for row in connection.rows(_PARTITIONS)]
    connection.rows(f"REVOKE ALL ON {', '.join([*tables, *partitions])} FROM {role}")
    connection.rows(f"REVOKE ALL ON SEQUENCE {positions} FROM {role}")
    connection.rows(f"REVOKE ALL ON FUNCTION handoff_audit_add_months(), handoff_audit_drop_months() FROM {role}")
    for name in tables:
        if connection.rows(_MAY_CHANGE, name, role, role, role):
            raise LedgerError(
                f"the role {role!r} may change the table {name!r} regardless of grants: it is a superuser, its owner "
                "or a member of the owner, or it has rights from PUBLIC or another role; use a dedicated role"
            )
    schema = scalar(connection, _MAY_CREATE, role)
    if schema is not None:
        raise LedgerError(
            f"the role {role!r} may create objects in the schema {schema!r}, which others could use by mistake; first "
            f"REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC (the default before Postgres 15) or from the role"
        )
    for statement in _statements(connection):
        if placeholder in statement:
            connection.rows(statement.replace(placeholder, role))


def _check_roles(writer: str | None, keeper: str | None) -> None:
    for role in (writer, keeper):
        if role is not None and not _ROLE.fullmatch(role):  # it becomes part of a statement
            raise ValueError(f"{role!r} is not the name of a role; expected lower-case letters, digits and _")
    if writer is not None and writer == keeper:
        raise ValueError(f"{writer!r} cannot be both writer and keeper: the workers' role must not delete bytes")


def _check_owner(connection: Connection) -> None:
    """Raise an error for a role that cannot grant: Postgres only warns about a GRANT by a role without the right."""
    for name in (*TABLES, VERSION_TABLE):
        owner = scalar(connection, _OWNER, name)
        if owner is not None:
            raise LedgerError(
                f"the table {name!r} belongs to {owner!r}, and only its owner can grant rights; migrate as {owner}"
            )


def _read_revision(connection: Connection) -> str | None:
    if not connection.rows(_HAS_TABLE[connection.dialect], VERSION_TABLE):
        return None
    version: str | None = scalar(connection, f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608 - our own name
    return version


def _create_tables(connection: Connection) -> None:
    for statement in _statements(connection):
        if _WRITER not in statement and _KEEPER not in statement:
            connection.rows(statement)


def _add_months(connection: Connection) -> None:
    """Give the bytes of an older ledger in Postgres a partition for each month."""
    before, after = _read_sql(_MONTHS).split("-- Here", 1)
    new = [
        statement
        for statement in _statements(connection)
        if ("handoff_audit_content" in statement or "_months()" in statement)
        and (_WRITER not in statement and _KEEPER not in statement)
    ]
    for statement in (*before.strip().split("\n\n"), *new, *after.partition("\n")[2].split("\n\n")):
        connection.rows(statement)


def _statements(connection: Connection) -> list[str]:
    """Return the statements of the file with the tables and rights for this database."""
    return _read_sql(_SQL[connection.dialect]).split("\n\n")


def _read_sql(name: str) -> str:
    return resources.files("baton.ledger").joinpath(name).read_text(encoding="utf-8")


NAMESPACE_MARK = "{namespace}"
"""Stands for the Temporal namespace in a ledger's place or name: one setting, a ledger for each namespace."""
_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def in_namespace(setting: str, namespace: str) -> str:
    """Return a ledger's place, name or witness for a namespace.

    Raises:
        ValueError: The namespace's name cannot be part of a file's or a database's name.

    Example:
        >>> in_namespace("postgresql://baton_writer@audit-db/ledger_{namespace}", "team-a")
        'postgresql://baton_writer@audit-db/ledger_team-a'
    """
    if NAMESPACE_MARK not in setting:
        return setting
    if not _NAMESPACE.fullmatch(namespace):
        raise ValueError(
            f"the namespace {namespace!r} cannot be part of the ledger's place; name the ledger without it"
        )
    return setting.replace(NAMESPACE_MARK, namespace)


_URL = re.compile(r"\s*[a-z][a-z0-9+.-]+:", re.IGNORECASE)  # two letters at least: C:\ is a drive, not a scheme
_SQLITE = "sqlite:///"


_LIBPQ = re.compile(r"(.*\s)?(host|hostaddr|port|dbname|user|password|service)\s*=", re.IGNORECASE | re.DOTALL)


def is_ledger_url(where: str) -> bool:
    """Return whether this is a database address, well-formed or not, and not a path."""
    return (_URL.match(where) or _LIBPQ.match(where)) is not None


def open_database(where: str | Path, *, create: bool = True) -> Database:
    """Return the database at a path or URL, without connecting."""
    url = str(where)
    if isinstance(where, Path) or not is_ledger_url(url):
        return SqliteDatabase(Path(where), create=create)
    if url.startswith(_SQLITE):
        return SqliteDatabase(Path(url.removeprefix(_SQLITE)), create=create)
    if url.startswith(("postgresql:", "postgres:")):
        try:
            postgres = import_module("baton.ledger.store_postgres")  # its driver is an extra
        except ImportError as error:
            raise LedgerError("a ledger in Postgres needs a driver: pip install 'temporal-baton[postgres]'") from error
        database: Database = postgres.PostgresDatabase(url)
        return database
    form = "the form 'host=… dbname=…'" if _LIBPQ.match(url) else repr(url.partition(":")[0])
    raise ValueError(f"a ledger is a file or postgresql://user:password@host/database; {form} is neither")


async def migrate_ledger(where: str | Path, *, writer: str | None = None, keeper: str | None = None) -> None:
    """Create or upgrade the tables of a ledger in Postgres, as their owner; repeating it has no effect.

    Args:
        where: `postgresql://user:password@host/database`.
        writer: The workers' role: it may insert and select, and loses all other rights.
        keeper: The role that makes checkpoints and archives, likewise.

    Raises:
        LedgerError: It is a file, which is migrated when it is opened; or the database cannot be reached or changed.
        ValueError: It is not the address of a database, or a role cannot have these rights.
    """
    if isinstance(where, Path) or not is_ledger_url(where):
        raise LedgerError(f"the ledger {str(where)!r} is a file, which is migrated when it is opened; name a database")
    database = open_database(where)
    try:
        await migrate(database, writer=writer, keeper=keeper)
    finally:
        await database.close()


HASH_AT = "SELECT record_hash FROM handoff_audit WHERE task_id = ? AND sequence = ?"
"""The hash of one record of a task's chain."""

ERASED_TASKS = "SELECT DISTINCT task_id FROM handoff_audit WHERE substr(event_key, 1, 15) = 'erasure/ERASED/'"
"""The tasks with a record of an erasure, found by an index of these records alone."""

NEWEST_SIGNED = (
    "SELECT position, task_id, sequence, record_hash, recorded_at, key_id, signature FROM handoff_audit "
    "WHERE key_id IS NOT NULL ORDER BY position DESC LIMIT ?"
)
"""The newest records that name a key."""

_ADD = f"INSERT INTO handoff_audit ({_WRITER_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - our own names
_ADD_CONTENT = """INSERT INTO handoff_audit_content (position, codec, bytes)
VALUES ((SELECT position FROM handoff_audit WHERE task_id = ? AND sequence = ?), ?, ?)"""


@dataclass(frozen=True)
class StoredRecord:
    """The values of a record's two rows."""

    index: tuple[Any, ...]
    content: tuple[Any, ...]

    @classmethod
    def of(cls, record: AuditRecord) -> "StoredRecord":
        """Return the rows of a record."""
        task_id, sequence, previous_hash, *others = Claims.of(record.members)
        return cls(
            (task_id, sequence, previous_hash, record.hash, *others, record.signature),
            (task_id, sequence, CODEC, compress_record(record.header, record.message)),
        )


CHECKPOINT_COLUMNS = "size, position, last_hash, digest, at, key_id, signature"
_NEWEST_CHECKPOINT = f"SELECT {CHECKPOINT_COLUMNS} FROM handoff_audit_checkpoint ORDER BY size DESC LIMIT 1"  # noqa: S608


def to_checkpoint(ledger: str, row: Row) -> Checkpoint:
    """Return the unverified checkpoint of a row."""
    try:
        return Checkpoint(
            ledger=ledger,
            size=row["size"],
            position=row["position"],
            last_hash=format_digest(row["last_hash"]),
            digest=format_digest(row["digest"]),
            at=row["at"],
            key_id=row["key_id"],
            signature=None if row["signature"] is None else to_base64url(row["signature"]),
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedRowError(f"the ledger's checkpoint at {str(row['size'])[:20]} records") from error


def newest_checkpoint(connection: Connection, ledger: str) -> Checkpoint | None:
    """Return the newest checkpoint in the ledger, unverified."""
    rows = connection.rows(_NEWEST_CHECKPOINT)
    return to_checkpoint(ledger, rows[0]) if rows else None


def proved_checkpoints(connection: Connection, ledger: str, verifier: HeadVerifier | None) -> list[Checkpoint]:
    """Return the newest checkpoint in the ledger if its signature is good: it dates the records behind it."""
    try:
        newest = newest_checkpoint(connection, ledger)
    except DamagedRowError:
        return []
    proved = newest is not None and verifier is not None and newest.check(verifier) is SignatureCheck.GOOD
    return [newest] if newest is not None and proved else []


def to_end(ledger: str, row: Row, checkpoints: Sequence[Checkpoint] = ()) -> ChainEnd:
    """Return the end of a chain, unverified, as a row of the index states it.

    Args:
        ledger: The ledger's name.
        row: The row.
        checkpoints: The record is not older than those that it is behind.

    Raises:
        DamagedRowError: The row is damaged.
    """
    task_id, sequence, recorded_at, key_id = (row[name] for name in ("task_id", "sequence", "recorded_at", "key_id"))
    try:
        record_hash, signature = hashes(row)
        is_text = isinstance(task_id, str) and isinstance(
            key_id, str | None
        )  # a text that is not UTF-8 is read as bytes
        if not (is_text and 0 < sequence < 2**53):
            raise ValueError("it is not a row of the index")
        datetime.fromisoformat(recorded_at)
    except (DamagedRowError, ValueError, TypeError) as error:
        raise DamagedRowError(f"record {sequence!r} of task {task_id!r}") from error
    dates = [checkpoint.made_at for checkpoint in checkpoints if checkpoint.position < row["position"]]
    after = max((date for date in dates if date is not None), default=None)
    return ChainEnd(ChainLink(ledger, task_id, sequence, record_hash, recorded_at), key_id, signature, after)


def insert(connection: Connection, records: Sequence[StoredRecord]) -> None:
    """Insert records in order."""
    connection.many(_ADD, [record.index for record in records])
    connection.many(_ADD_CONTENT, [record.content for record in records])


CODEC = 1
"""The codec of new records: Zstandard with dictionary 1."""
MAX_RECORD_BYTES = 64 * 1024 * 1024
"""A record that decompresses to more counts as damaged; Temporal limits payloads to 2 MiB."""

# Level 3 saves only 1 to 2 % of the bytes and takes 50 % more time. Tables of 16 KiB save a third of the time, because
# they are no longer in the cache at the next record; they cost 1 to 2 % of the bytes.
_OPTIONS: dict[int, int] = {zstd.CompressionParameter.compression_level: 1, zstd.CompressionParameter.hash_log: 12}
_FILES = {1: "dictionary-1.txt"}


class DamagedContentError(Exception):
    """Stored bytes do not decompress to a record, which verification reports as flawed."""


def compress_record(header: bytes, message: bytes) -> bytes:
    """Compress a record with `CODEC`."""
    compressor = _compressor()
    return compressor.compress(b"%s\n%s" % (header, message), zstd.ZstdCompressor.FLUSH_FRAME)


def restore_record(codec: int, stored: bytes) -> tuple[bytes, bytes]:
    """Return the unverified header and message of stored bytes."""
    if codec not in _FILES:
        raise DamagedContentError(f"it is stored with codec {codec}; this version supports {sorted(_FILES)}")
    decompressor = zstd.ZstdDecompressor(zstd_dict=load_dictionary("baton.ledger", _FILES[codec]))
    try:
        plain = decompressor.decompress(stored, max_length=MAX_RECORD_BYTES)
    except zstd.ZstdError as error:
        raise DamagedContentError(f"its stored bytes are damaged: {error}") from error
    if not decompressor.eof or decompressor.unused_data:
        raise DamagedContentError("its stored bytes are not exactly one frame")
    header, _, message = plain.partition(b"\n")
    return header, message


@cache
def _compressor() -> zstd.ZstdCompressor:
    """Return the cached compressor: it holds the dictionary's tables, and it is thread-safe."""
    return zstd.ZstdCompressor(
        options=_OPTIONS, zstd_dict=load_dictionary("baton.ledger", _FILES[CODEC]).as_undigested_dict
    )
