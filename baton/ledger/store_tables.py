"""The ledger's tables, with the triggers that keep them append-only, for SQLite and for Postgres.

`handoff_audit` holds one short row for each record, forever: it keeps chains from forking and events from being
recorded twice, wherever the record's bytes are. The bytes are in `handoff_audit_content` until a segment of the cold
tier has them. Triggers refuse updates, deletes, replacements, and records that do not continue the end of their chain.
The owner of the database can drop them; signatures, and heads kept outside, show what was done then.
"""

from baton.ledger.store_database import APPEND_ONLY

_SEGMENT_HOLDS = (
    "EXISTS (SELECT 1 FROM handoff_audit_segment AS s WHERE OLD.position BETWEEN s.first_position AND s.last_position)"
)
_CONTINUES = "handoff_audit: the record does not continue the end of its chain"
_BREAKS_OFF = (
    "NEW.sequence <> coalesce((SELECT max(sequence) FROM handoff_audit WHERE task_id = NEW.task_id), 0) + 1 "
    "OR EXISTS (SELECT 1 FROM handoff_audit WHERE task_id = NEW.task_id AND sequence = NEW.sequence - 1 "
    "AND record_hash <> NEW.previous_hash)"
)
_KEYS = {
    "handoff_audit_ledger": ["one = NEW.one"],
    "handoff_audit": [
        "position = NEW.position",
        "task_id = NEW.task_id AND sequence = NEW.sequence",
        "task_id = NEW.task_id AND previous_hash = NEW.previous_hash",
        "task_id = NEW.task_id AND event_key = NEW.event_key",
    ],
    "handoff_audit_content": ["position = NEW.position"],
    "handoff_audit_segment": ["first_position = NEW.first_position", "last_position = NEW.last_position"],
    "handoff_audit_checkpoint": ["size = NEW.size"],
}
"""The tables, and for each unique constraint the condition under which a row equals `NEW`."""
TABLES = tuple(_KEYS)


def statements(dialect: str) -> list[str]:
    """Return the statements that make tables and triggers."""
    return [*_tables(dialect), *(_sqlite_triggers() if dialect == "sqlite" else _postgres_triggers())]


def _tables(dialect: str) -> list[str]:
    sqlite = dialect == "sqlite"
    position = "INTEGER PRIMARY KEY AUTOINCREMENT" if sqlite else "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
    number, data = ("INTEGER", "BLOB") if sqlite else ("BIGINT", "BYTEA")  # an INTEGER key is SQLite's own row id
    return [
        """CREATE TABLE handoff_audit_ledger (
            one SMALLINT NOT NULL PRIMARY KEY CONSTRAINT handoff_audit_ledger_is_one CHECK (one = 1),
            name TEXT NOT NULL)""",
        f"""CREATE TABLE handoff_audit (
            position {position},
            task_id TEXT NOT NULL,
            sequence BIGINT NOT NULL CONSTRAINT handoff_audit_sequence CHECK (sequence > 0),
            previous_hash {data} NOT NULL,
            record_hash {data} NOT NULL,
            event_key TEXT NOT NULL,
            message_hash {data} NOT NULL,
            recorded_at TEXT NOT NULL,
            key_id TEXT,
            signature {data},
            CONSTRAINT handoff_audit_no_fork UNIQUE (task_id, sequence),
            CONSTRAINT handoff_audit_one_successor UNIQUE (task_id, previous_hash),
            CONSTRAINT handoff_audit_each_event_once UNIQUE (task_id, event_key),
            CONSTRAINT handoff_audit_hashes CHECK (length(previous_hash) = 32 AND length(record_hash) = 32))""",
        f"""CREATE TABLE handoff_audit_content (
            position {number} NOT NULL PRIMARY KEY REFERENCES handoff_audit (position),
            codec SMALLINT NOT NULL,
            bytes {data} NOT NULL)""",
        """CREATE TABLE handoff_audit_segment (
            first_position BIGINT NOT NULL PRIMARY KEY,
            last_position BIGINT NOT NULL UNIQUE,
            records BIGINT NOT NULL,
            segment TEXT NOT NULL,
            manifest TEXT NOT NULL,
            archived_at TEXT NOT NULL,
            CONSTRAINT handoff_audit_segment_range CHECK (first_position <= last_position))""",
        f"""CREATE TABLE handoff_audit_checkpoint (
            size BIGINT NOT NULL PRIMARY KEY,
            position BIGINT NOT NULL,
            root {data} NOT NULL,
            peaks {data} NOT NULL,
            at TEXT NOT NULL,
            key_id TEXT,
            signature {data})""",
    ]


def _sqlite_triggers() -> list[str]:
    """SQLite's INSERT OR REPLACE deletes a row without asking the delete trigger, so a third one looks for it."""
    refuse = f"BEGIN SELECT RAISE(ABORT, '{APPEND_ONLY}'); END"
    found = []
    for table, keys in _KEYS.items():
        unless = f"WHEN NOT ({_SEGMENT_HOLDS}) " if table == "handoff_audit_content" else ""
        taken = f"EXISTS (SELECT 1 FROM {table} WHERE {' OR '.join(f'({key})' for key in keys)})"  # noqa: S608 - our own names
        found += [
            f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} {refuse}",
            f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} {unless}{refuse}",
            f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} WHEN {taken} "
            "BEGIN SELECT RAISE(ABORT, 'handoff_audit has such a row already'); END",
        ]
    return [
        *found,
        f"CREATE TRIGGER handoff_audit_continues BEFORE INSERT ON handoff_audit WHEN {_BREAKS_OFF} "
        f"BEGIN SELECT RAISE(ABORT, '{_CONTINUES}'); END",
    ]


def _postgres_triggers() -> list[str]:
    """Each function finds the ledger's own tables, whatever the search path and the temporary tables of its caller."""
    refuse = f"RAISE EXCEPTION '{APPEND_ONLY}';"
    sealed = "NEW.position <= (SELECT max(last_position) FROM handoff_audit_segment)"
    found = _function("handoff_audit_refuse", refuse)
    for table in _KEYS:
        for what in ("update", "truncate") if table == "handoff_audit_content" else ("update", "delete", "truncate"):
            found.append(_trigger(f"{table}_no_{what}", what, table, "handoff_audit_refuse", each="STATEMENT"))
    for name, what, table, body in (
        (
            "handoff_audit_content_no_delete",
            "delete",
            "handoff_audit_content",
            f"IF {_SEGMENT_HOLDS} THEN RETURN OLD; END IF; {refuse}",
        ),
        (
            "handoff_audit_content_no_return",  # bytes in place of some that went to the cold tier would be read first
            "insert",
            "handoff_audit_content",
            f"IF {sealed} THEN {refuse} END IF; RETURN NEW;",
        ),
        (
            "handoff_audit_continues",
            "insert",
            "handoff_audit",
            f"IF {_BREAKS_OFF} THEN RAISE EXCEPTION '{_CONTINUES}' USING ERRCODE = 'integrity_constraint_violation'; "
            "END IF; RETURN NEW;",
        ),
    ):
        found += [*_function(name, body), _trigger(name, what, table, name, each="ROW")]
    return found


def _trigger(name: str, what: str, table: str, function: str, *, each: str) -> str:
    return f"CREATE TRIGGER {name} BEFORE {what.upper()} ON {table} FOR EACH {each} EXECUTE FUNCTION {function}()"


def _function(name: str, body: str) -> list[str]:
    schema = "SELECT relnamespace::regnamespace FROM pg_class WHERE oid = 'handoff_audit_content'::regclass"
    return [
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$",
        f"DO $$ BEGIN EXECUTE format('ALTER FUNCTION {name}() SET search_path = %s, pg_temp', ({schema})); END $$",
    ]
