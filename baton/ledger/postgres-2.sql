-- Revision 2 of the tables in Postgres: the bytes of records get a partition for each month (postgres.sql). What is there
-- becomes the partition of the first month of all, in place: nothing is copied, and no record is refused.

DROP FUNCTION handoff_audit_content_no_delete() CASCADE;

DROP FUNCTION handoff_audit_content_no_return() CASCADE;

DROP TRIGGER handoff_audit_content_no_change ON handoff_audit_content;

ALTER TABLE handoff_audit_content RENAME TO handoff_audit_content_0001_01;

ALTER TABLE handoff_audit_content_0001_01
    DROP CONSTRAINT handoff_audit_content_pkey,
    ADD COLUMN month DATE NOT NULL DEFAULT '0001-01-01';

-- Here the statements of postgres.sql about the table and its months are executed.
ALTER TABLE handoff_audit_content
    ATTACH PARTITION handoff_audit_content_0001_01 FOR VALUES FROM (MINVALUE) TO ('0002-01-01');

CREATE TRIGGER handoff_audit_content_no_change BEFORE UPDATE OR TRUNCATE ON handoff_audit_content_0001_01
FOR EACH STATEMENT EXECUTE FUNCTION handoff_audit_refuse();

-- The roles keep their rights, to the whole in place of the part.
DO $$
DECLARE
    role TEXT;
    appends BOOLEAN;
    deletes BOOLEAN;
BEGIN
    FOR role, appends, deletes IN
        SELECT pg_get_userbyid(acl.grantee), bool_or(privilege_type = 'INSERT'), bool_or(privilege_type = 'DELETE')
        FROM pg_class, aclexplode(relacl) AS acl
        WHERE oid = 'handoff_audit_content_0001_01'::regclass AND acl.grantee NOT IN (0, relowner)
        GROUP BY acl.grantee
    LOOP
        EXECUTE format('REVOKE ALL ON handoff_audit_content_0001_01 FROM %I', role);
        EXECUTE format('GRANT SELECT ON handoff_audit_content TO %I', role);
        CONTINUE WHEN NOT appends;
        EXECUTE format('GRANT INSERT (position, codec, bytes) ON handoff_audit_content TO %I', role);
        EXECUTE format('GRANT EXECUTE ON FUNCTION handoff_audit_add_months() TO %I', role);
        CONTINUE WHEN NOT deletes;
        EXECUTE format('GRANT DELETE ON handoff_audit_content TO %I', role);
        EXECUTE format('GRANT EXECUTE ON FUNCTION handoff_audit_drop_months() TO %I', role);
    END LOOP;
END $$;

UPDATE handoff_audit_version SET version_num = '2';
