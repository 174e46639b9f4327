-- A role that is tied to a tenant sees no other, whatever it names; the tie is a policy of each table for this role.
CREATE FUNCTION perdure.tie_role(role regrole, tenant text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    name regclass;
BEGIN
    FOR name IN SELECT p.polrelid FROM pg_policy p WHERE p.polname = 'tenant'
        AND p.polrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'perdure'::regnamespace) LOOP
        EXECUTE format('DROP POLICY IF EXISTS %I ON %s', 'tied ' || role::oid, name);
        EXECUTE format('CREATE POLICY %I ON %s AS RESTRICTIVE TO %s USING (tenant = %L)', 'tied ' || role::oid, name, role,
                       tenant);
    END LOOP;
END $$;
