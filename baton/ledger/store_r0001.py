"""The ledger's name, the chains, and the bytes of the records.

`handoff_audit` holds one short row for each record, for ever: it keeps the chains from forking and each event
from being written twice, in whichever tier the record's bytes are. The bytes are in `handoff_audit_content`
until a sealed segment of the cold tier has them. It is not partitioned by time: uniqueness within a task would
end at each partition.
"""

from baton.ledger.store_triggers import append_only, continues_its_chain


def statements(dialect: str) -> list[str]:
    """Return the statements that make the tables."""
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
        *append_only(dialect, "handoff_audit_ledger", ["one = NEW.one"]),
        *append_only(
            dialect,
            "handoff_audit",
            [
                "position = NEW.position",
                "task_id = NEW.task_id AND sequence = NEW.sequence",
                "task_id = NEW.task_id AND previous_hash = NEW.previous_hash",
                "task_id = NEW.task_id AND event_key = NEW.event_key",
            ],
        ),
        *continues_its_chain(dialect),
        *append_only(dialect, "handoff_audit_content", ["position = NEW.position"]),
    ]
