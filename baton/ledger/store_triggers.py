"""The triggers that keep tables append-only, in each database's language.

No update, no delete, no truncation, and no replacement: SQLite's `INSERT OR REPLACE` deletes a row without
asking the delete trigger, so a third one looks for the row that would be replaced. The owner of the database
can drop them all; they stop mistakes and stolen workers' credentials, and the anchored heads show the rest.
"""

from collections.abc import Sequence

from baton.ledger.store_database import APPEND_ONLY

_REFUSE = f"BEGIN SELECT RAISE(ABORT, '{APPEND_ONLY}'); END"  # the body of a SQLite trigger
_REFUSE_TWIN = "BEGIN SELECT RAISE(ABORT, 'handoff_audit has such a row already'); END"


def append_only(dialect: str, table: str, keys: Sequence[str]) -> list[str]:
    """Return the statements that guard a table.

    Args:
        dialect: `"sqlite"` or `"postgresql"`.
        table: The table.
        keys: For each of its unique constraints, the condition under which a row equals `NEW`.
    """
    if dialect == "sqlite":
        taken = " OR ".join(f"({key})" for key in keys)
        exists = f"EXISTS (SELECT 1 FROM {table} WHERE {taken})"  # noqa: S608 - of our own names
        return [
            f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} {_REFUSE}",
            f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} {_REFUSE}",
            f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} WHEN {exists} {_REFUSE_TWIN}",
        ]
    return [
        f"CREATE FUNCTION {table}_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"RAISE EXCEPTION '{APPEND_ONLY}'; END $$",
        *(
            f"CREATE TRIGGER {table}_no_{what} BEFORE {what.upper()} ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_refuse()"
            for what in ("update", "delete", "truncate")
        ),
    ]


def delete_only_if(dialect: str, table: str, condition: str) -> list[str]:
    """Return the statements that let rows of a guarded table go under a condition on `OLD`, and under no other."""
    if dialect == "sqlite":
        return [
            f"DROP TRIGGER {table}_no_delete",
            f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} WHEN NOT ({condition}) {_REFUSE}",
        ]
    return [
        f"DROP TRIGGER {table}_no_delete ON {table}",
        f"CREATE FUNCTION {table}_check_delete() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF {condition} THEN RETURN OLD; END IF; RAISE EXCEPTION '{APPEND_ONLY}'; END $$",
        f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} "
        f"FOR EACH ROW EXECUTE FUNCTION {table}_check_delete()",
    ]


def continues_its_chain(dialect: str) -> list[str]:
    """Return the statements that refuse a record that does not continue the end of its task's chain."""
    last = "(SELECT max(sequence) FROM handoff_audit WHERE task_id = NEW.task_id)"
    other = (
        "EXISTS (SELECT 1 FROM handoff_audit WHERE task_id = NEW.task_id AND sequence = NEW.sequence - 1 "
        "AND record_hash <> NEW.previous_hash)"
    )
    breaks = f"NEW.sequence <> coalesce({last}, 0) + 1 OR {other}"
    name, says = "handoff_audit_continues", "handoff_audit: the record does not continue the end of its chain"
    if dialect == "sqlite":
        return [
            f"CREATE TRIGGER {name} BEFORE INSERT ON handoff_audit WHEN {breaks} "
            f"BEGIN SELECT RAISE(ABORT, '{says}'); END"
        ]
    return [
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF {breaks} THEN "
        f"RAISE EXCEPTION '{says}' USING ERRCODE = 'integrity_constraint_violation'; END IF; RETURN NEW; END $$",
        f"CREATE TRIGGER {name} BEFORE INSERT ON handoff_audit FOR EACH ROW EXECUTE FUNCTION {name}()",
    ]
