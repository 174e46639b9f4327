-- Writers that wait for the same space share a commit.
--
-- A writer holds the lock of its space until its commit is flushed, so that no reader sees what a crash could take back.
-- One flush for each write would be the speed of a space that many processes write to, such as `store`, where every thread
-- begins.  So a writer that finds the turn taken leaves its write in a table and waits.  Whoever has the turn next makes all
-- the writes that it finds there, one after another by `apply`, and commits them with one flush.  The others find theirs
-- recorded.  A write that was refused is tried again by its own writer, which so learns why.
--
-- The writer that has the turn also holds the gate of the space, alone; those who wait ask for the gate together.  So one
-- commit lets all of them go at once: those whose writes are made leave, and of the others one takes the turn.
--
-- The table is not logged: a crash empties it, and the writers, who have no answer, send their writes again.  What is left
-- of a writer that went away is made within seconds or never, and its op_id is looked up as always.

-- The advisory lock of the writers of a space.
CREATE FUNCTION perdure.turn_of(t text, space bytea) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT hashtextextended(encode(space, 'hex'), hashtextextended(t, 0)) $$;

-- The advisory lock of those who wait for the writer that has the turn.
CREATE FUNCTION perdure.gate_of(t text, space bytea) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT hashtextextended(encode(space, 'hex'), hashtextextended(t, 1)) $$;

CREATE UNLOGGED TABLE perdure.requests (
    tenant text COLLATE "C" NOT NULL,
    space bytea NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    left_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    op bytea NOT NULL,
    intent bytea NOT NULL,
    n bigint[] NOT NULL,
    f bytea[] NOT NULL,
    keys bigint[] NOT NULL,
    places integer[] NOT NULL,
    PRIMARY KEY (tenant, space, id)
);

CREATE PROCEDURE perdure.apply_together(
    t text, space_name bytea, op bytea, wanted bytea, n bigint[], f bytea[], wanted_keys bigint[], places integer[],
    OUT code text, OUT at integer, OUT number bigint, OUT one bytea, OUT two bytea, OUT now_us bigint,
    OUT generation bigint, OUT follower bigint, OUT clock text, OUT place text, OUT moved bytea
) LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    mine bigint; other perdure.requests; hit record; is_first boolean := false; made bigint[];
    durability constant text := current_setting('synchronous_commit');
    flushed constant text := replace(durability, 'off', 'on');
BEGIN
    n[1] := n[1] & ~8;  -- the turn is taken here
    PERFORM set_config('perdure.tenant', t, true);
    INSERT INTO perdure.requests (tenant, space, op, intent, n, f, keys, places)
    VALUES (t, space_name, op, wanted, n, f, wanted_keys, places) RETURNING id INTO mine;
    COMMIT;
    LOOP
        PERFORM set_config('perdure.tenant', t, true), set_config('lock_timeout', '5s', true);
        PERFORM FROM perdure.requests r WHERE r.tenant = t AND r.space = space_name AND r.id = mine;
        EXIT WHEN NOT FOUND;
        is_first := pg_try_advisory_xact_lock(perdure.turn_of(t, space_name));
        EXIT WHEN is_first;
        PERFORM pg_advisory_xact_lock_shared(perdure.gate_of(t, space_name));
        COMMIT;  -- and with it the gate
    END LOOP;
    now_us := perdure.now_us(); clock := perdure.clock_name();
    IF is_first THEN
        PERFORM pg_advisory_xact_lock(perdure.gate_of(t, space_name));
        -- It may have been made between the look and the turn.
        PERFORM FROM perdure.requests r WHERE r.tenant = t AND r.space = space_name AND r.id = mine;
        is_first := FOUND;
    END IF;
    IF is_first THEN
        FOR other IN SELECT * FROM perdure.requests r WHERE r.tenant = t AND r.space = space_name ORDER BY r.id LOOP
            PERFORM set_config('synchronous_commit', durability, true);  -- a refusal switches it off
            IF other.id = mine THEN
                SELECT * INTO code, at, number, one, two, now_us, generation, follower, clock
                FROM perdure.apply(t, space_name, op, wanted, n, f, wanted_keys, places);
            ELSIF other.left_at > clock_timestamp() - interval '5 seconds' THEN
                BEGIN
                    PERFORM FROM perdure.apply(t, space_name, other.op, other.intent, other.n, other.f, other.keys, other.places);
                EXCEPTION WHEN OTHERS THEN
                    NULL;  -- its own writer meets the same error
                END;
            END IF;
            made := made || other.id;
        END LOOP;
        DELETE FROM perdure.requests r WHERE r.tenant = t AND r.space = space_name AND r.id = ANY(made);
        PERFORM set_config('synchronous_commit', flushed, true), set_config('client_min_messages', 'warning', true);
        RETURN;
    END IF;
    -- Another writer made it, which is committed, or met a refusal.
    SELECT l.pack, l.position, l.chain, s.generation, s.followed_until, s.follower INTO hit FROM perdure.spaces s
    JOIN perdure.keys e ON e.tenant = t AND e.space = s.id AND e.key = n[7]
    JOIN perdure.log l ON l.tenant = t AND l.space = s.id AND l.row_id = e.row_id
    WHERE s.tenant = t AND s.name = space_name AND l.op_id = op AND l.intent = wanted AND l.dropped IS NULL LIMIT 1;
    IF NOT FOUND THEN
        PERFORM pg_advisory_xact_lock(perdure.turn_of(t, space_name));
        PERFORM pg_advisory_xact_lock(perdure.gate_of(t, space_name));
        SELECT * INTO code, at, number, one, two, now_us, generation, follower, clock
        FROM perdure.apply(t, space_name, op, wanted, n, f, wanted_keys, places);
        RETURN;
    END IF;
    code := 'again'; one := hit.pack; number := hit.position; two := hit.chain; generation := hit.generation;
    IF hit.followed_until > now_us THEN follower := hit.follower; END IF;
    IF current_setting('synchronous_standby_names') <> '' THEN
        COMMIT;  -- the next in the queue need not wait
        PERFORM set_config('synchronous_commit', flushed, true), set_config('client_min_messages', 'warning', true);
        PERFORM pg_logical_emit_message(true, 'perdure', '');  -- if the other's wait for the standbys was cut short
    END IF;
END $$;
