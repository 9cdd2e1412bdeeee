"""What the roles of a Postgres ledger could still do to bytes that are on record; a file has no roles.

The keeper could have its delete looked up in a temporary table of its own, named like the one of the segments;
and the writer could add bytes in the place of some that had gone to the cold tier, which then were read first.
"""

from baton.ledger.store_database import APPEND_ONLY

_INSERTING, _DELETING = "handoff_audit_content_check_insert", "handoff_audit_content_check_delete"


def statements(dialect: str) -> list[str]:
    """Return the statements that hold inserts and deletes of bytes to the ledger's own segments."""
    if dialect == "sqlite":
        return []
    return [
        f"CREATE FUNCTION {_INSERTING}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "  # noqa: S608 - our own names
        "IF NEW.position <= (SELECT max(last_position) FROM handoff_audit_segment) "
        f"THEN RAISE EXCEPTION '{APPEND_ONLY}'; END IF; RETURN NEW; END $$",
        "CREATE TRIGGER handoff_audit_content_no_return BEFORE INSERT ON handoff_audit_content "
        f"FOR EACH ROW EXECUTE FUNCTION {_INSERTING}()",
        *(_in_its_own_schema(name) for name in (_INSERTING, _DELETING, "handoff_audit_continues")),
    ]


def _in_its_own_schema(function: str) -> str:
    """Return the statement that makes a function see the ledger's tables, whatever its caller's search path is."""
    schema = "SELECT relnamespace::regnamespace FROM pg_class WHERE oid = 'handoff_audit_content'::regclass"
    return (
        f"DO $$ BEGIN EXECUTE format('ALTER FUNCTION {function}() SET search_path = %s, pg_temp', ({schema})); END $$"
    )
