-- Row security: a transaction sees the rows of the tenant that it names, and no others.
--
-- Every statement of the engine compares the tenant itself.  Row security is the second wall: it holds for what an operator
-- or a program asks in SQL of its own, and for a condition that someone forgets.  The server applies it to every role but
-- superusers and those with BYPASSRLS, also to the owner of the tables.  Views read with the rights of the role that asks.
--
-- The tenant is a setting, `perdure.tenant`, of one transaction, or of a session that is its client's own.  A role may name
-- any tenant, so a role that a tenant's own people can log in with is tied to that tenant: it then sees no other, whatever
-- it names.
--
-- This runs after each migration: every table with a column `tenant`, and every part of one, shows a transaction the rows
-- of the tenant that it names and takes no others, also from the owner.  The ties of roles hold for a new table too.
DO $$
DECLARE
    name regclass; tie record;
BEGIN
    FOR name IN SELECT c.oid FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant'
        WHERE c.relnamespace = 'perdure'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relforcerowsecurity LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY tenant ON %s USING (tenant = current_setting(''perdure.tenant'', true))', name);
        FOR tie IN SELECT polname, polroles[1]::regrole AS role, pg_get_expr(polqual, polrelid) AS condition
            FROM pg_policy WHERE polrelid = 'perdure.spaces'::regclass AND NOT polpermissive LOOP
            EXECUTE format('CREATE POLICY %I ON %s AS RESTRICTIVE TO %s USING (%s)', tie.polname, name, tie.role,
                           tie.condition);
        END LOOP;
    END LOOP;
END $$;
