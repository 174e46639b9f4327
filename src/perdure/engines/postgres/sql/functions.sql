-- The functions that compute keys and digests, and the walk back along a history.

-- A key is the first 8 bytes of a digest as a number; the lowest bytes are the lowest number.
CREATE FUNCTION perdure.key_of(d bytea) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT ('x' || encode(substr(d, 1, 8), 'hex'))::bit(64)::bigint # (-9223372036854775808) $$;

CREATE FUNCTION perdure.op_key(op_id bytea) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT perdure.key_of(sha256('\x6f7000'::bytea || op_id)) $$;

-- The key of the name of a space, which leads to no row of the log.  It is stored beside the row of the space, under the
-- space 0: a space whose row is lost would otherwise look as if it had never been written to.
CREATE FUNCTION perdure.name_key(space bytea) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT perdure.key_of(sha256('\x6e616d6500'::bytea || space)) $$;

CREATE FUNCTION perdure.is_lost(t text, space_name bytea) RETURNS boolean LANGUAGE sql STABLE AS $$
SELECT EXISTS (SELECT FROM perdure.keys k WHERE k.tenant = t AND k.space = 0 AND k.key = perdure.name_key(space_name))
   AND NOT EXISTS (SELECT FROM perdure.spaces s WHERE s.tenant = t AND s.name = space_name)
$$;

CREATE FUNCTION perdure.digest_of(kind bytea, body bytea) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT sha256('\x706572647572652f3100'::bytea || kind || '\x00'::bytea || int8send(length(body)) || body) $$;

CREATE FUNCTION perdure.cell_digest(space bytea, name bytea, revision bigint, value bytea, pos bigint, listed boolean)
RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT sha256('\x706572647572652f310063656c6c00'::bytea || convert_to(
    length(space) || ' ' || length(name) || ' ' || revision || ' ' || pos || ' ' || listed::int || ' '
    || coalesce(length(value), -1) || ' ', 'UTF8') || space || name || coalesce(value, ''::bytea))
$$;

-- What a cell, a head or the end of the ledger adds to the seal of its space: the first 16 bytes of a hash as a number.
-- It is one expression, although it hashes twice, because the server then evaluates it in place and makes no call.
CREATE FUNCTION perdure.part(kind bytea, name bytea, digest bytea) RETURNS numeric
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT coalesce(
    ('x' || encode(substr(sha256(kind || '\x00'::bytea || name || '\x00'::bytea || digest), 1, 8), 'hex'))::bit(64)::bigint
        * 18446744073709551616
    + ('x' || encode(substr(sha256(kind || '\x00'::bytea || name || '\x00'::bytea || digest), 9, 8), 'hex'))::bit(64)::bigint,
    0)
$$;

-- The sum over everything of a space that can change, from what is stored.
CREATE FUNCTION perdure.sum_of(t text, s bigint) RETURNS numeric LANGUAGE sql STABLE AS $$
SELECT coalesce((SELECT sum(perdure.part('cell', name, digest)) FROM perdure.cells WHERE tenant = t AND space = s), 0)
     + coalesce((SELECT sum(perdure.part('head', timeline, move)) FROM perdure.heads WHERE tenant = t AND space = s), 0)
     + coalesce((SELECT perdure.part('ledger', convert_to(position::text, 'UTF8'), chain) FROM perdure.entries
                 WHERE tenant = t AND space = s ORDER BY position DESC LIMIT 1), 0)
$$;

CREATE FUNCTION perdure.move_key(timeline bytea, version bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT perdure.key_of(sha256('\x6d6f766500'::bytea || timeline || convert_to(chr(10) || version, 'UTF8'))) $$;

-- The rows that a row needs: four bytes each.
CREATE FUNCTION perdure.numbers_in(needs bytea) RETURNS SETOF integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT ('x' || encode(substr(needs, 4 * i + 1, 4), 'hex'))::bit(32)::integer FROM generate_series(0, length(needs) / 4 - 1) i
$$;

CREATE FUNCTION perdure.now_us() RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- A server that takes over begins a new timeline of the write-ahead log, and its clock is another one.
CREATE FUNCTION perdure.clock_name() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF pg_is_in_recovery() THEN RETURN (SELECT lpad(to_hex(timeline_id), 8, '0') FROM pg_control_checkpoint()); END IF;
    RETURN lower(left(pg_walfile_name(pg_current_wal_insert_lsn()), 8));
END $$;

-- Back from a commit along first parents: by far jumps where they do not go too far, else by steps.
CREATE FUNCTION perdure.back(t text, space_name bytea, at bytea, skip bigint, turns integer, "limit" integer)
RETURNS TABLE (row_id integer, digest bytea, depth integer, turn integer, sequence bigint, pack bytea)
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE s bigint; here record; far record; target bigint; left_over integer := "limit";
BEGIN
    SELECT x.id INTO s FROM perdure.spaces x WHERE x.tenant = t AND x.name = space_name;
    SELECT l.* INTO here FROM perdure.keys k
    CROSS JOIN LATERAL (SELECT * FROM perdure.log x WHERE x.tenant = t AND x.space = s AND x.row_id = k.row_id OFFSET 0) l
    WHERE k.tenant = t AND k.space = s AND k.key = perdure.key_of(at) AND l.digest = at AND l.depth IS NOT NULL LIMIT 1;
    IF NOT FOUND THEN RETURN; END IF;
    row_id := here.row_id; RETURN NEXT;  -- the commit itself is there
    target := here.depth - skip;
    WHILE here.depth > target OR here.turn > turns LOOP
        IF here.prev IS NULL THEN RETURN; END IF;
        SELECT l.* INTO far FROM perdure.log l WHERE l.tenant = t AND l.space = s AND l.row_id = here.jump;
        IF far.row_id = here.row_id OR (far.depth <= target AND far.turn <= turns) THEN
            SELECT l.* INTO far FROM perdure.log l WHERE l.tenant = t AND l.space = s AND l.row_id = here.prev;
        END IF;
        IF far.row_id IS NULL OR far.row_id >= here.row_id THEN
            row_id := -1; digest := NULL; RETURN NEXT; RETURN;  -- a row is missing
        END IF;
        here := far;
    END LOOP;
    RETURN QUERY WITH RECURSIVE line(row_id, digest, depth, turn, sequence, pack, prev, step) AS (
        SELECT here.row_id, here.digest, here.depth, here.turn, here.sequence, here.pack, here.prev, 1
        UNION ALL SELECT l.row_id, l.digest, l.depth, l.turn, l.sequence, l.pack, l.prev, line.step + 1 FROM line
        CROSS JOIN LATERAL (SELECT * FROM perdure.log x WHERE x.tenant = t AND x.space = s AND x.row_id = line.prev OFFSET 0) l
        WHERE line.step < left_over
    ) SELECT line.row_id, line.digest, line.depth, line.turn, line.sequence, line.pack FROM line WHERE left_over > 0 ORDER BY step;
END $$;
