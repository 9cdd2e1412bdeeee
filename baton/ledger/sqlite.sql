-- The ledger's tables in an SQLite file. Baton creates them when it first opens the file. What they are for:
-- store_schema.py, and the same tables in postgres.sql. STRICT needs SQLite 3.37. An empty line separates two statements.

CREATE TABLE handoff_audit_version (version_num TEXT NOT NULL PRIMARY KEY) STRICT;

INSERT INTO handoff_audit_version VALUES ('1');

CREATE TABLE handoff_audit_ledger (
    one INTEGER NOT NULL PRIMARY KEY CONSTRAINT handoff_audit_ledger_is_one CHECK (one = 1),
    name TEXT NOT NULL
) STRICT;

CREATE TABLE handoff_audit (
    position INTEGER PRIMARY KEY,
    task_id TEXT NOT NULL,
    sequence INTEGER NOT NULL CONSTRAINT handoff_audit_sequence CHECK (sequence > 0),
    previous_hash BLOB NOT NULL,
    record_hash BLOB NOT NULL,
    event_key TEXT NOT NULL,
    message_hash BLOB NOT NULL,
    recorded_at TEXT NOT NULL,
    key_id TEXT,
    signature BLOB,
    CONSTRAINT handoff_audit_no_fork UNIQUE (task_id, sequence),
    CONSTRAINT handoff_audit_each_event_once UNIQUE (task_id, event_key),
    CONSTRAINT handoff_audit_hashes CHECK (length(previous_hash) = 32 AND length(record_hash) = 32)
) STRICT;

CREATE INDEX handoff_audit_erasures ON handoff_audit (task_id) WHERE substr(event_key, 1, 15) = 'erasure/ERASED/';

CREATE TABLE handoff_audit_content (
    position INTEGER NOT NULL PRIMARY KEY REFERENCES handoff_audit (position), -- SQLite's own row id
    codec INTEGER NOT NULL,
    bytes BLOB NOT NULL
) STRICT;

CREATE TABLE handoff_audit_segment (
    first_position INTEGER NOT NULL PRIMARY KEY,
    last_position INTEGER NOT NULL UNIQUE,
    records INTEGER NOT NULL,
    segment TEXT NOT NULL,
    archived_at TEXT NOT NULL,
    CONSTRAINT handoff_audit_segment_range CHECK (first_position <= last_position)
) STRICT;

CREATE TABLE handoff_audit_checkpoint (
    size INTEGER NOT NULL PRIMARY KEY,
    position INTEGER NOT NULL,
    last_hash BLOB NOT NULL,
    digest BLOB NOT NULL,
    at TEXT NOT NULL,
    key_id TEXT,
    signature BLOB
) STRICT;

-- A record is the next one of its chain.
CREATE TRIGGER handoff_audit_continues BEFORE INSERT ON handoff_audit
WHEN NEW.sequence <> coalesce((SELECT max(sequence) FROM handoff_audit WHERE task_id = NEW.task_id), 0) + 1
    OR EXISTS (
        SELECT 1 FROM handoff_audit
        WHERE task_id = NEW.task_id AND sequence = NEW.sequence - 1 AND record_hash <> NEW.previous_hash
    )
BEGIN SELECT RAISE(ABORT, 'handoff_audit: the record does not continue the end of its chain'); END;

-- Bytes are deleted once a segment of the cold tier holds them.
CREATE TRIGGER handoff_audit_content_no_delete BEFORE DELETE ON handoff_audit_content
WHEN NOT EXISTS (
    SELECT 1 FROM handoff_audit_segment AS s WHERE OLD.position BETWEEN s.first_position AND s.last_position
)
BEGIN SELECT RAISE(ABORT, 'handoff_audit is append-only'); END;

-- Everything else stays.
CREATE TRIGGER handoff_audit_no_delete BEFORE DELETE ON handoff_audit
BEGIN SELECT RAISE(ABORT, 'handoff_audit is append-only'); END;

CREATE TRIGGER handoff_audit_ledger_no_delete BEFORE DELETE ON handoff_audit_ledger
BEGIN SELECT RAISE(ABORT, 'handoff_audit is append-only'); END;

CREATE TRIGGER handoff_audit_segment_no_delete BEFORE DELETE ON handoff_audit_segment
BEGIN SELECT RAISE(ABORT, 'handoff_audit is append-only'); END;

CREATE TRIGGER handoff_audit_checkpoint_no_delete BEFORE DELETE ON handoff_audit_checkpoint
BEGIN SELECT RAISE(ABORT, 'handoff_audit is append-only'); END;

CREATE TRIGGER handoff_audit_no_update BEFORE UPDATE ON handoff_audit
BEGIN SELECT RAISE(ABORT, 'handoff_audit is append-only'); END;

CREATE TRIGGER handoff_audit_ledger_no_update BEFORE UPDATE ON handoff_audit_ledger
BEGIN SELECT RAISE(ABORT, 'handoff_audit is append-only'); END;

CREATE TRIGGER handoff_audit_content_no_update BEFORE UPDATE ON handoff_audit_content
BEGIN SELECT RAISE(ABORT, 'handoff_audit is append-only'); END;

CREATE TRIGGER handoff_audit_segment_no_update BEFORE UPDATE ON handoff_audit_segment
BEGIN SELECT RAISE(ABORT, 'handoff_audit is append-only'); END;

CREATE TRIGGER handoff_audit_checkpoint_no_update BEFORE UPDATE ON handoff_audit_checkpoint
BEGIN SELECT RAISE(ABORT, 'handoff_audit is append-only'); END;

-- INSERT OR REPLACE deletes a row without the triggers above.
CREATE TRIGGER handoff_audit_no_replace BEFORE INSERT ON handoff_audit
WHEN EXISTS (
    SELECT 1 FROM handoff_audit
    WHERE position = NEW.position
        OR (task_id = NEW.task_id AND sequence = NEW.sequence)
        OR (task_id = NEW.task_id AND event_key = NEW.event_key)
)
BEGIN SELECT RAISE(ABORT, 'handoff_audit already has such a row'); END;

CREATE TRIGGER handoff_audit_ledger_no_replace BEFORE INSERT ON handoff_audit_ledger
WHEN EXISTS (SELECT 1 FROM handoff_audit_ledger WHERE one = NEW.one)
BEGIN SELECT RAISE(ABORT, 'handoff_audit already has such a row'); END;

CREATE TRIGGER handoff_audit_content_no_replace BEFORE INSERT ON handoff_audit_content
WHEN EXISTS (SELECT 1 FROM handoff_audit_content WHERE position = NEW.position)
BEGIN SELECT RAISE(ABORT, 'handoff_audit already has such a row'); END;

CREATE TRIGGER handoff_audit_segment_no_replace BEFORE INSERT ON handoff_audit_segment
WHEN EXISTS (
    SELECT 1 FROM handoff_audit_segment
    WHERE first_position = NEW.first_position OR last_position = NEW.last_position
)
BEGIN SELECT RAISE(ABORT, 'handoff_audit already has such a row'); END;

CREATE TRIGGER handoff_audit_checkpoint_no_replace BEFORE INSERT ON handoff_audit_checkpoint
WHEN EXISTS (SELECT 1 FROM handoff_audit_checkpoint WHERE size = NEW.size)
BEGIN SELECT RAISE(ABORT, 'handoff_audit already has such a row'); END;
