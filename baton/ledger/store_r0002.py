"""The cold tier's segments, and checkpoints; bytes may leave the hot tier once a segment has them."""

from baton.ledger.store_triggers import append_only, delete_only_if

_HELD = (
    "EXISTS (SELECT 1 FROM handoff_audit_segment AS s WHERE OLD.position BETWEEN s.first_position AND s.last_position)"
)


def statements(dialect: str) -> list[str]:
    """Return the statements that make the tables, and let sealed records out of the hot tier."""
    data = "BLOB" if dialect == "sqlite" else "BYTEA"
    return [
        """CREATE TABLE handoff_audit_segment (
            first_position BIGINT NOT NULL PRIMARY KEY,
            last_position BIGINT NOT NULL UNIQUE,
            records BIGINT NOT NULL,
            segment TEXT NOT NULL,
            manifest TEXT NOT NULL,
            sealed_at TEXT NOT NULL,
            CONSTRAINT handoff_audit_segment_range CHECK (first_position <= last_position))""",
        f"""CREATE TABLE handoff_audit_checkpoint (
            size BIGINT NOT NULL PRIMARY KEY,
            position BIGINT NOT NULL,
            root {data} NOT NULL,
            peaks {data} NOT NULL,
            at TEXT NOT NULL,
            key_id TEXT,
            signature {data})""",
        *append_only(
            dialect,
            "handoff_audit_segment",
            ["first_position = NEW.first_position", "last_position = NEW.last_position"],
        ),
        *append_only(dialect, "handoff_audit_checkpoint", ["size = NEW.size"]),
        *delete_only_if(dialect, "handoff_audit_content", _HELD),
    ]
