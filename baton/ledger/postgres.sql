-- The ledger's tables in a Postgres database, and the rights of its two roles. The owner creates them with
-- `baton audit migrate --writer ROLE --keeper ROLE`, which also checks that the roles have no other rights, or with
-- `psql -v writer=ROLE -v keeper=ROLE -f postgres.sql`. An empty line separates two statements.

CREATE TABLE handoff_audit_version (version_num TEXT NOT NULL PRIMARY KEY);

INSERT INTO handoff_audit_version VALUES ('2');

CREATE TABLE handoff_audit_ledger (
    one SMALLINT NOT NULL PRIMARY KEY CONSTRAINT handoff_audit_ledger_is_one CHECK (one = 1),
    name TEXT NOT NULL
);

CREATE TABLE handoff_audit (
    position BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id TEXT NOT NULL,
    sequence BIGINT NOT NULL CONSTRAINT handoff_audit_sequence CHECK (sequence > 0),
    previous_hash BYTEA NOT NULL,
    record_hash BYTEA NOT NULL,
    event_key TEXT NOT NULL,
    message_hash BYTEA NOT NULL,
    recorded_at TEXT NOT NULL,
    key_id TEXT,
    signature BYTEA,
    CONSTRAINT handoff_audit_no_fork UNIQUE (task_id, sequence),
    CONSTRAINT handoff_audit_each_event_once UNIQUE (task_id, event_key),
    CONSTRAINT handoff_audit_hashes CHECK (length(previous_hash) = 32 AND length(record_hash) = 32)
);

CREATE INDEX handoff_audit_erasures ON handoff_audit (task_id) WHERE substr(event_key, 1, 15) = 'erasure/ERASED/';

-- The bytes, most of a record, have a partition for each month in which they were recorded, which leaves as a whole
-- once the cold tier holds it. The index stays one table: an event is recorded once in all months.
CREATE TABLE handoff_audit_content (
    position BIGINT NOT NULL REFERENCES handoff_audit (position),
    codec SMALLINT NOT NULL,
    bytes BYTEA NOT NULL,
    month DATE NOT NULL DEFAULT date_trunc('month', now() AT TIME ZONE 'UTC'),
    PRIMARY KEY (position, month)
) PARTITION BY RANGE (month);

CREATE TABLE handoff_audit_segment (
    first_position BIGINT NOT NULL PRIMARY KEY,
    last_position BIGINT NOT NULL UNIQUE,
    records BIGINT NOT NULL,
    segment TEXT NOT NULL,
    archived_at TEXT NOT NULL,
    CONSTRAINT handoff_audit_segment_range CHECK (first_position <= last_position)
);

CREATE TABLE handoff_audit_checkpoint (
    size BIGINT NOT NULL PRIMARY KEY,
    position BIGINT NOT NULL,
    last_hash BYTEA NOT NULL,
    digest BYTEA NOT NULL,
    at TEXT NOT NULL,
    key_id TEXT,
    signature BYTEA
);

-- A record is the next one of its chain.
CREATE FUNCTION handoff_audit_continues() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.sequence <> coalesce((SELECT max(sequence) FROM handoff_audit WHERE task_id = NEW.task_id), 0) + 1
        OR EXISTS (
            SELECT 1 FROM handoff_audit
            WHERE task_id = NEW.task_id AND sequence = NEW.sequence - 1 AND record_hash <> NEW.previous_hash
        )
    THEN
        RAISE EXCEPTION 'handoff_audit: the record does not continue the end of its chain'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER handoff_audit_continues BEFORE INSERT ON handoff_audit
FOR EACH ROW EXECUTE FUNCTION handoff_audit_continues();

-- Bytes are deleted once a segment of the cold tier holds them.
CREATE FUNCTION handoff_audit_content_no_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM handoff_audit_segment AS s WHERE OLD.position BETWEEN s.first_position AND s.last_position
    ) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'handoff_audit is append-only';
END $$;

CREATE TRIGGER handoff_audit_content_no_delete BEFORE DELETE ON handoff_audit_content
FOR EACH ROW EXECUTE FUNCTION handoff_audit_content_no_delete();

-- They do not return, also not in another month: readers would prefer these bytes to those of the cold tier.
CREATE FUNCTION handoff_audit_content_no_return() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.position <= (SELECT max(last_position) FROM handoff_audit_segment)
        OR EXISTS (SELECT 1 FROM handoff_audit_content WHERE position = NEW.position)
    THEN
        RAISE EXCEPTION 'handoff_audit is append-only';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER handoff_audit_content_no_return BEFORE INSERT ON handoff_audit_content
FOR EACH ROW EXECUTE FUNCTION handoff_audit_content_no_return();

-- Everything else stays.
CREATE FUNCTION handoff_audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'handoff_audit is append-only';
END $$;

CREATE TRIGGER handoff_audit_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON handoff_audit
FOR EACH STATEMENT EXECUTE FUNCTION handoff_audit_refuse();

CREATE TRIGGER handoff_audit_ledger_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON handoff_audit_ledger
FOR EACH STATEMENT EXECUTE FUNCTION handoff_audit_refuse();

CREATE TRIGGER handoff_audit_content_no_change BEFORE UPDATE OR TRUNCATE ON handoff_audit_content
FOR EACH STATEMENT EXECUTE FUNCTION handoff_audit_refuse();

CREATE TRIGGER handoff_audit_segment_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON handoff_audit_segment
FOR EACH STATEMENT EXECUTE FUNCTION handoff_audit_refuse();

CREATE TRIGGER handoff_audit_checkpoint_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON handoff_audit_checkpoint
FOR EACH STATEMENT EXECUTE FUNCTION handoff_audit_refuse();

-- The partitions of this month and the next. A writer calls it when a month begins; it can do nothing else with it.
-- Triggers for rows pass on to a partition, those for statements do not.
CREATE FUNCTION handoff_audit_add_months() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    first DATE;
    name TEXT;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('handoff_audit_months', 0::bigint));
    FOR ahead IN 0..1 LOOP
        first := date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => ahead);
        name := to_char(first, '"handoff_audit_content_"YYYY_MM');
        CONTINUE WHEN to_regclass(name) IS NOT NULL;
        EXECUTE format('CREATE TABLE %I PARTITION OF handoff_audit_content FOR VALUES FROM (%L) TO (%L)',
            name, first, first + interval '1 month');
        EXECUTE format('CREATE TRIGGER handoff_audit_content_no_change BEFORE UPDATE OR TRUNCATE ON %I '
            'FOR EACH STATEMENT EXECUTE FUNCTION handoff_audit_refuse()', name);
    END LOOP;
END $$;

-- Drop the partitions of past months of which segments of the cold tier hold every record. The lock waits for writers
-- that began in the month and have not committed, whose records the check would not see; readers go on.
CREATE FUNCTION handoff_audit_drop_months() RETURNS BIGINT LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '5s' AS $$
DECLARE
    name TEXT;
    is_needed BOOLEAN;
    dropped BIGINT := 0;
BEGIN
    FOR name IN
        SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'handoff_audit_content'::regclass
            AND c.relname::text COLLATE "C" < to_char(now() AT TIME ZONE 'UTC', '"handoff_audit_content_"YYYY_MM')
    LOOP
        EXECUTE format('LOCK TABLE %I IN SHARE ROW EXCLUSIVE MODE', name);
        EXECUTE format('SELECT EXISTS (SELECT 1 FROM (
            SELECT lag(last_position, 1, -9223372036854775808) OVER (ORDER BY first_position) AS after,
                first_position AS before FROM handoff_audit_segment
            UNION ALL
            SELECT coalesce(max(last_position), -9223372036854775808), 9223372036854775807 FROM handoff_audit_segment
        ) AS gap WHERE EXISTS (
            SELECT 1 FROM %I AS c WHERE c.position > gap.after AND c.position < gap.before
        ))', name) INTO is_needed;
        CONTINUE WHEN is_needed;
        EXECUTE format('DROP TABLE %I', name);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;

REVOKE ALL ON FUNCTION handoff_audit_add_months(), handoff_audit_drop_months() FROM PUBLIC;

-- The functions look only into the schema of the tables: a caller's search path and temporary tables do not matter.
DO $$
DECLARE
    tables TEXT := (SELECT relnamespace::regnamespace FROM pg_class WHERE oid = 'handoff_audit_content'::regclass);
    name TEXT;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'handoff_audit_continues', 'handoff_audit_content_no_delete', 'handoff_audit_content_no_return',
        'handoff_audit_refuse', 'handoff_audit_add_months', 'handoff_audit_drop_months'
    ] LOOP
        EXECUTE format('ALTER FUNCTION %s() SET search_path = %s, pg_temp', name, tables);
    END LOOP;
END $$;

SELECT handoff_audit_add_months();

-- The writer, whose credentials the workers have, reads and appends. It does not fill the position, which could place
-- a record before older ones.
GRANT SELECT ON handoff_audit, handoff_audit_ledger, handoff_audit_content, handoff_audit_segment,
    handoff_audit_checkpoint, handoff_audit_version TO :writer;

GRANT INSERT (task_id, sequence, previous_hash, record_hash, event_key, message_hash, recorded_at, key_id, signature)
    ON handoff_audit TO :writer;

GRANT INSERT ON handoff_audit_ledger TO :writer;

GRANT INSERT (position, codec, bytes) ON handoff_audit_content TO :writer;

GRANT EXECUTE ON FUNCTION handoff_audit_add_months() TO :writer;

-- The keeper also makes checkpoints, and moves records to the cold tier.
GRANT SELECT ON handoff_audit, handoff_audit_ledger, handoff_audit_content, handoff_audit_segment,
    handoff_audit_checkpoint, handoff_audit_version TO :keeper;

GRANT INSERT (task_id, sequence, previous_hash, record_hash, event_key, message_hash, recorded_at, key_id, signature)
    ON handoff_audit TO :keeper;

GRANT INSERT ON handoff_audit_ledger, handoff_audit_segment, handoff_audit_checkpoint TO :keeper;

GRANT INSERT (position, codec, bytes) ON handoff_audit_content TO :keeper;

GRANT EXECUTE ON FUNCTION handoff_audit_add_months(), handoff_audit_drop_months() TO :keeper;

GRANT DELETE ON handoff_audit_content TO :keeper;
