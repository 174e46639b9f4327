-- What a write and the removal of a space do.  This runs again where a migration changes it.

-- The link of a write: the first 8 bytes of a hash over the link of the write before and what its row says of it.  A row
-- that was exchanged for another breaks the chain.  `revisions` has 8 bytes for each.
CREATE OR REPLACE FUNCTION perdure.linked(
    before bytea, op bytea, intent bytea, revisions bytea, pos bigint, chain bytea, number bigint
) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT substr(sha256(before || int8send(number) || int8send(coalesce(pos, 0)) || int4send(length(op))
    || int4send(length(intent)) || op || intent || coalesce(chain, ''::bytea) || coalesce(revisions, ''::bytea)), 1, 8)
$$;

-- The server evaluates a function in place only if its body keeps what the function promises, and conversions of text are
-- merely stable.  A call that is not in place took four times as long, and more where it is the first of its statement.
ALTER FUNCTION perdure.cell_digest(bytea, bytea, bigint, bytea, bigint, boolean) STABLE;
ALTER FUNCTION perdure.move_key(bytea, bigint) STABLE;

-- Each statement inside a PL/pgSQL function sees what was committed before that statement began.  So `apply` takes the
-- lock of the space first and looks afterwards: a duplicate that was committed while it waited is found, and is not
-- taken for a stale head.  A refusal is a returned value, because an exception would be a line in the server's log.
-- Nothing is changed before the last check has passed.  The statements inside keep their plans: planning them anew for
-- each write took more than half of its time.  `reads` says why they read a row of the log in a lateral subquery.
-- After a write `place` begins with the new seal and link; of an ordinary one it goes on with the place of the commit, and
-- `moved` is the record of the move, so that the next one can be sent as `next_commit.py` does.
-- `apply` receives all numbers in one array and all bytes in another, because a parameter for each field would cost more
-- than the write itself; two more arrays have the keys and the rows that they lead to:
--
--     n  flags (1 check the seal, 2 check only, 4 ordinary, 8 take the turn, or answer 'busy', 16 the revisions are given;
--        a client from before links gives none and is refused; 32 answer with the link and the record, which a client
--        that had the store open before version 16 does not expect), fences, cells, moves, entries, rows, key of the op_id, generation of the bases (-1: none); then for each
--        fence: revision; cell: expected, listed; move: expected version (-1: begin), sealed;
--        row: kind (0 plain, 1 with a commit, 2 one large object), depth, events, key of the run (0: none), turns
--        without a number
--     f  fence: name; cell: name, value; move: timeline, expected commit, commit, record before and after `previous`,
--        move before it; row: digest, parents, pack, state, rows that the state needs; entry: body; at the end the
--        revisions that the receipt names, 8 bytes each
CREATE OR REPLACE FUNCTION perdure.apply(
    t text, space_name bytea, op bytea, wanted bytea, n bigint[], f bytea[], wanted_keys bigint[], places integer[],
    OUT code text, OUT at integer, OUT number bigint, OUT one bytea, OUT two bytea, OUT now_us bigint,
    OUT generation bigint, OUT follower bigint, OUT clock text, OUT place text, OUT moved bytea
) LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_variable
DECLARE
    sp perdure.spaces; hit record; head perdure.heads; line record;
    durability constant text := replace(current_setting('synchronous_commit'), 'off', 'on');
    is_new boolean; is_ordinary boolean; is_same boolean;
    fences constant integer := n[2]; cells constant integer := n[3]; moves constant integer := n[4];
    entries constant integer := n[5]; rows constant integer := n[6];
    i integer; j integer; k integer; m integer;  -- i and j: the next field of n and of f
    n_moves constant integer := 9 + fences + 2 * cells; f_moves constant integer := 1 + fences + 2 * cells;
    n_rows constant integer := n_moves + 2 * moves; f_rows constant integer := f_moves + 6 * moves;
    seal numeric; link bytea; pos bigint; chain bytea; body bytea; digest bytea; next_row integer; own bigint;
    old_digests bytea[]; old_moves bytea[]; to_rows integer[]; previous bytea;
    -- Of each row of a write that is not ordinary: where it goes (NULL: nowhere), and the place of its commit.
    row_of integer[]; prev_of integer[]; jump_of integer[]; depth_of integer[]; turn_of integer[]; events_of integer[];
    sequence_of bigint[]; run_of bigint[];
    p_row integer; p_jump integer; p_depth integer; p_turn integer; p_events integer; p_sequence bigint; p_run bigint;
    f_row integer; f_depth integer; g_depth integer;
BEGIN
    now_us := extract(epoch FROM clock_timestamp()) * 1000000;
    clock := CASE WHEN pg_is_in_recovery() THEN perdure.clock_name()
                  ELSE lower(left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)) END;
    IF current_setting('transaction_isolation') <> 'read committed' THEN code := 'isolation'; RETURN; END IF;
    IF n[1] & 16 = 0 THEN code := 'newer_schema'; RETURN; END IF;
    -- A refusal changes nothing, so its commit need not be flushed.
    PERFORM set_config('lock_timeout', '5s', true), set_config('perdure.tenant', t, true),
        set_config('synchronous_commit', 'off', true);

    -- The turn, the lock, and then everything else.
    IF n[1] & 8 = 8 THEN
        IF NOT pg_try_advisory_xact_lock(perdure.turn_of(t, space_name)) THEN code := 'busy'; RETURN; END IF;
    END IF;
    SELECT * INTO sp FROM perdure.spaces s WHERE s.tenant = t AND s.name = space_name FOR UPDATE;
    is_new := NOT FOUND;
    IF is_new THEN sp.id := -1; sp.rows := 0; sp.seal := 0; sp.position := 0; sp.generation := 0; END IF;
    IF is_new AND perdure.is_lost(t, space_name) THEN code := 'space_lost'; RETURN; END IF;
    generation := sp.generation; IF sp.followed_until > now_us THEN follower := sp.follower; END IF;
    -- What this write stores as differences may have been forgotten, or lost when another server took over.
    IF n[8] >= 0 AND n[8] <> generation + (('x' || clock)::bit(32)::bigint << 31) THEN code := 'rebase'; RETURN; END IF;

    -- An ordinary write is one commit on top of one timeline: what it has to be compared with is read at once.
    is_ordinary := false;
    IF n[1] & 4 = 4 THEN
        SELECT h.move, p.row_id, p.jump, p.depth, p.turn, p.events, p.sequence, p.run, d.depth AS f_depth, d.jump AS f_row,
            g.depth AS g_depth INTO line
        FROM perdure.heads h
        CROSS JOIN LATERAL (SELECT * FROM perdure.log x WHERE x.tenant = t AND x.space = sp.id AND x.row_id = h.row_id OFFSET 0) p
        CROSS JOIN LATERAL (SELECT * FROM perdure.log x WHERE x.tenant = t AND x.space = sp.id AND x.row_id = p.jump OFFSET 0) d
        CROSS JOIN LATERAL (SELECT * FROM perdure.log x WHERE x.tenant = t AND x.space = sp.id AND x.row_id = d.jump OFFSET 0) g
        WHERE h.tenant = t AND h.space = sp.id AND h.timeline = f[f_moves] AND h.version = n[n_moves] AND NOT h.sealed
          AND h.commit = f[f_moves + 1] AND h.move = coalesce(f[f_moves + 5], h.move) AND p.digest = h.commit AND p.depth + 1 = n[n_rows + 1]
          AND perdure.digest_of('move', h.record) = h.move
          AND NOT EXISTS (SELECT FROM perdure.keys e WHERE e.tenant = t AND e.space = sp.id
                          AND e.key IN (n[7], perdure.key_of(f[f_rows])));
        is_ordinary := FOUND;
    END IF;

    -- An earlier write of this op_id.
    IF NOT is_ordinary AND NOT is_new THEN
        SELECT l.intent, l.pack, l.position, l.chain, l.dropped INTO hit
        FROM perdure.keys e CROSS JOIN LATERAL (SELECT * FROM perdure.log x WHERE x.tenant = t AND x.space = sp.id AND x.row_id = e.row_id OFFSET 0) l
        WHERE e.tenant = t AND e.space = sp.id AND e.key = n[7] AND l.op_id = op LIMIT 1;
        IF FOUND THEN
            number := hit.position;
            IF hit.dropped IS NOT NULL THEN code := 'dropped'; one := hit.dropped;
            ELSIF hit.intent IS DISTINCT FROM wanted THEN code := 'reused'; one := hit.pack; two := hit.intent;
            ELSE
                code := 'again'; one := hit.pack; two := hit.chain;
                -- If the first attempt's wait for the standbys was cut short, this commit waits for them in its place.
                PERFORM set_config('synchronous_commit', durability, true), set_config('client_min_messages', 'warning', true),
                    pg_logical_emit_message(true, 'perdure', '');
            END IF;
            RETURN;
        END IF;
    END IF;
    IF n[1] & 1 = 1 AND NOT is_new THEN
        IF perdure.sum_of(t, sp.id) IS DISTINCT FROM sp.seal THEN code := 'seal_broken'; RETURN; END IF;
    END IF;

    -- Fences and cells.
    IF fences + cells > 0 THEN
        i := 9; j := 1;
        FOR k IN 1..fences + cells LOOP
            SELECT c.revision, c.digest,
                c.digest <> perdure.cell_digest(space_name, c.name, c.revision, c.value, c.position, c.listed) AS is_damaged
            INTO hit FROM perdure.cells c WHERE c.tenant = t AND c.space = sp.id AND c.name = f[j];
            at := k; number := coalesce(hit.revision, 0);
            IF hit.is_damaged THEN code := 'cell_damaged'; RETURN; END IF;
            IF number <> n[i] THEN code := 'moved'; RETURN; END IF;
            IF k <= fences THEN
                i := i + 1; j := j + 1;
            ELSE
                old_digests[k - fences] := hit.digest;
                i := i + 2; j := j + 2;
            END IF;
        END LOOP;
    END IF;

    IF NOT is_ordinary THEN
        -- Heads.
        i := n_moves; j := f_moves;
        FOR k IN 1..moves LOOP
            SELECT * INTO head FROM perdure.heads h WHERE h.tenant = t AND h.space = sp.id AND h.timeline = f[j];
            at := k;
            IF FOUND THEN
                body := convert_to(coalesce('"to":"' || encode(head.commit, 'hex') || '",', '') || '"version":'
                                   || head.version || '}', 'UTF8');
                IF perdure.digest_of('move', head.record) <> head.move
                   OR substr(head.record, length(head.record) - length(body) + 1) <> body THEN
                    code := 'head_damaged'; RETURN;
                END IF;
            ELSIF f[j] = 'main'::bytea THEN
                head.version := 0; head.commit := NULL; head.sealed := false; head.move := NULL;
            ELSE
                head.version := NULL; head.move := NULL;
            END IF;
            IF n[i] < 0 THEN
                IF head.version IS NOT NULL THEN code := 'exists'; RETURN; END IF;
            ELSIF head.version IS NULL THEN code := 'no_timeline'; RETURN;
            ELSIF head.sealed THEN code := 'sealed'; RETURN;
            ELSIF head.version <> n[i] OR head.commit IS DISTINCT FROM f[j + 1]
                  OR (f[j + 5] IS NOT NULL AND head.move IS DISTINCT FROM f[j + 5]) THEN
                code := 'stale'; number := head.version; one := head.commit; RETURN;
            END IF;
            old_moves[k] := head.move;
            i := i + 2; j := j + 6;
        END LOOP;

        -- Commits and their places.
        row_of := array_fill(NULL::integer, ARRAY[rows]);
        prev_of := row_of; jump_of := row_of; depth_of := row_of; turn_of := row_of; events_of := row_of;
        sequence_of := row_of; run_of := row_of; next_row := sp.rows;
        i := n_rows; j := f_rows;
        FOR k IN 1..rows LOOP
            at := k;
            digest := f[j];
            p_row := NULL;
            IF n[i] > 0 AND NOT is_new THEN  -- what the space has already
                SELECT l.row_id INTO p_row
                FROM perdure.keys e CROSS JOIN LATERAL (SELECT * FROM perdure.log x WHERE x.tenant = t AND x.space = sp.id AND x.row_id = e.row_id OFFSET 0) l
                WHERE e.tenant = t AND e.space = sp.id AND e.key = perdure.key_of(digest) AND l.digest = digest LIMIT 1;
            END IF;
            IF n[i] <> 2 OR p_row IS NULL THEN  -- a large object is not stored again
                next_row := next_row + 1; row_of[k] := next_row;
            END IF;
            IF n[i] = 1 AND p_row IS NULL THEN
                -- The first parent is looked at last, so that its place is what remains.
                FOR m IN REVERSE length(f[j + 1]) / 32 .. 1 LOOP
                    body := substr(f[j + 1], m * 32 - 31, 32);
                    p_row := NULL;
                    FOR o IN REVERSE k - 1 .. 1 LOOP
                        IF f[f_rows + 5 * (o - 1)] = body AND depth_of[o] IS NOT NULL THEN
                            p_row := row_of[o]; p_jump := jump_of[o]; p_depth := depth_of[o]; p_turn := turn_of[o];
                            p_events := events_of[o]; p_sequence := sequence_of[o]; p_run := run_of[o];
                            EXIT;
                        END IF;
                    END LOOP;
                    IF p_row IS NULL AND NOT is_new THEN
                        SELECT l.row_id, l.jump, l.depth, l.turn, l.events, l.sequence, l.run
                        INTO p_row, p_jump, p_depth, p_turn, p_events, p_sequence, p_run
                        FROM perdure.keys e
                        CROSS JOIN LATERAL (SELECT * FROM perdure.log x WHERE x.tenant = t AND x.space = sp.id AND x.row_id = e.row_id OFFSET 0) l
                        WHERE e.tenant = t AND e.space = sp.id AND e.key = perdure.key_of(body) AND l.digest = body
                          AND l.depth IS NOT NULL LIMIT 1;
                    END IF;
                    IF p_row IS NULL THEN code := 'no_commit'; one := body; RETURN; END IF;
                END LOOP;
                IF p_row IS NULL THEN
                    p_depth := -1; p_turn := 0; p_events := 0; p_sequence := 0; p_run := NULL;
                END IF;
                IF n[i + 1] <> p_depth + 1 THEN code := 'depth'; number := p_depth; RETURN; END IF;
                own := nullif(n[i + 3], 0);
                is_same := coalesce(own = p_run, false);
                prev_of[k] := p_row; depth_of[k] := n[i + 1]; events_of[k] := n[i + 2]; run_of[k] := own;
                turn_of[k] := p_turn + (NOT is_same)::int; sequence_of[k] := p_sequence + p_events;
                IF p_row IS NULL THEN
                    jump_of[k] := row_of[k];
                ELSE
                    -- Two equal jumps are joined into one (skew binary numbers), so any ancestor is O(log n) away.
                    IF p_jump > sp.rows THEN
                        m := array_position(row_of, p_jump); f_row := jump_of[m]; f_depth := depth_of[m];
                    ELSE
                        SELECT l.jump, l.depth INTO f_row, f_depth
                        FROM perdure.log l WHERE l.tenant = t AND l.space = sp.id AND l.row_id = p_jump;
                    END IF;
                    IF f_row > sp.rows THEN
                        g_depth := depth_of[array_position(row_of, f_row)];
                    ELSE
                        SELECT l.depth INTO g_depth
                        FROM perdure.log l WHERE l.tenant = t AND l.space = sp.id AND l.row_id = f_row;
                    END IF;
                    jump_of[k] := CASE WHEN p_depth - f_depth = f_depth - g_depth THEN f_row ELSE p_row END;
                END IF;
                IF NOT is_same AND own IS NOT NULL THEN
                    wanted_keys := wanted_keys || own; places := places || k;
                END IF;
            END IF;
            i := i + 5; j := j + 5;
        END LOOP;
        IF n[1] & 2 = 2 THEN code := 'checked'; RETURN; END IF;
        FOR k IN 1..moves LOOP
            body := f[f_moves + 6 * (k - 1) + 2];
            IF body IS NOT NULL THEN
                p_row := NULL;
                FOR o IN REVERSE rows .. 1 LOOP
                    IF f[f_rows + 5 * (o - 1)] = body AND depth_of[o] IS NOT NULL THEN p_row := row_of[o]; EXIT; END IF;
                END LOOP;
                IF p_row IS NULL AND NOT is_new THEN
                    SELECT l.row_id INTO p_row FROM perdure.keys e
                    CROSS JOIN LATERAL (SELECT * FROM perdure.log x WHERE x.tenant = t AND x.space = sp.id AND x.row_id = e.row_id OFFSET 0) l
                    WHERE e.tenant = t AND e.space = sp.id AND e.key = perdure.key_of(body) AND l.digest = body
                      AND l.depth IS NOT NULL LIMIT 1;
                END IF;
                IF p_row IS NULL THEN code := 'no_commit'; one := body; RETURN; END IF;
                to_rows[k] := p_row;
            END IF;
        END LOOP;
    END IF;

    -- Nothing below is refused.  If the wait for the standbys is cut short, a warning is all that the client hears of it.
    PERFORM set_config('synchronous_commit', durability, true), set_config('client_min_messages', 'warning', true);
    seal := sp.seal; pos := sp.position; chain := sp.chain;
    IF is_new THEN
        INSERT INTO perdure.spaces AS s (tenant, name) VALUES (t, space_name) RETURNING s.id, s.link INTO sp.id, sp.link;
        INSERT INTO perdure.keys (tenant, space, key, row_id) VALUES (t, 0, perdure.name_key(space_name), 0);
    END IF;
    number := 0;
    IF entries > 0 THEN
        FOR k IN 1..entries LOOP
            pos := pos + 1;
            body := convert_to(coalesce(encode(chain, 'hex'), '') || E'\n', 'UTF8') || f[f_rows + 5 * rows + k - 1];
            chain := perdure.digest_of('entry', body);
            INSERT INTO perdure.entries (tenant, space, position, chain, body)
            VALUES (t, sp.id, pos, chain, f[f_rows + 5 * rows + k - 1]);
        END LOOP;
        number := pos; two := chain;
        seal := seal + perdure.part('ledger', convert_to(pos::text, 'UTF8'), chain)
              - perdure.part('ledger', convert_to(sp.position::text, 'UTF8'), sp.chain);
    END IF;
    IF cells > 0 THEN
        i := 9 + fences; j := 1 + fences;
        FOR k IN 1..cells LOOP
            digest := perdure.cell_digest(space_name, f[j], n[i] + 1, f[j + 1], number, n[i + 1] = 1);
            seal := seal + perdure.part('cell', f[j], digest) - perdure.part('cell', f[j], old_digests[k]);
            IF n[i] = 0 THEN
                INSERT INTO perdure.cells (tenant, space, name, revision, value, position, listed, is_found, digest)
                VALUES (t, sp.id, f[j], 1, f[j + 1], number, n[i + 1] = 1, n[i + 1] = 1 AND f[j + 1] IS NOT NULL, digest);
            ELSE
                UPDATE perdure.cells c SET revision = n[i] + 1, value = f[j + 1], position = number, listed = n[i + 1] = 1,
                    is_found = n[i + 1] = 1 AND f[j + 1] IS NOT NULL, digest = digest
                WHERE c.tenant = t AND c.space = sp.id AND c.name = f[j];
            END IF;
            i := i + 2; j := j + 2;
        END LOOP;
    END IF;
    IF is_ordinary THEN
        body := f[f_moves + 3] || convert_to('"previous":"' || encode(line.move, 'hex') || '",', 'UTF8') || f[f_moves + 4];
        digest := perdure.digest_of('move', body);
        next_row := sp.rows + 1;
        link := perdure.linked(sp.link, op, wanted, f[f_rows + 5 * rows + entries], number, two, next_row);
        own := nullif(n[n_rows + 3], 0);
        is_same := coalesce(own = line.run, false);
        UPDATE perdure.heads h SET version = n[n_moves] + 1, commit = f[f_moves + 2], sealed = n[n_moves + 1] = 1,
            move = digest, record = body, row_id = next_row
        WHERE h.tenant = t AND h.space = sp.id AND h.timeline = f[f_moves];
        INSERT INTO perdure.log (tenant, space, row_id, digest, prev, jump, depth, turn, sequence, events, unnumbered, run,
            op_id, intent, position, chain, previous, pack, state, needs, link)
        VALUES (t, sp.id, next_row, f[f_rows], line.row_id,
            CASE WHEN line.depth - line.f_depth = line.f_depth - line.g_depth THEN line.f_row ELSE line.row_id END,
            n[n_rows + 1], line.turn + (NOT is_same)::int, line.sequence + line.events, n[n_rows + 2], nullif(n[n_rows + 4], 0), own,
            op, wanted, nullif(number, 0), two, '\x01'::bytea || line.move, f[f_rows + 2], f[f_rows + 3], f[f_rows + 4], link);
        INSERT INTO perdure.keys (tenant, space, key, row_id)
        SELECT t, sp.id, e, next_row FROM unnest(CASE WHEN is_same OR own IS NULL OR own = ANY (wanted_keys) THEN wanted_keys ELSE wanted_keys || own END) e;
        seal := seal + perdure.part('head', f[f_moves], digest) - perdure.part('head', f[f_moves], line.move);
        moved := CASE WHEN n[1] & 32 = 32 THEN body ELSE digest END;
        place := concat_ws(' ', line.turn + (NOT is_same)::int, line.sequence + line.events, line.row_id, line.depth,
            line.jump, line.f_depth, line.f_row, line.g_depth);
    ELSE
        link := perdure.linked(sp.link, op, wanted, f[f_rows + 5 * rows + entries], number, two, next_row);
        previous := ''::bytea;
        FOR k IN 1..moves LOOP
            i := n_moves + 2 * (k - 1); j := f_moves + 6 * (k - 1);
            body := f[j + 3] || coalesce(convert_to('"previous":"' || encode(old_moves[k], 'hex') || '",', 'UTF8'), ''::bytea)
                 || f[j + 4];
            digest := perdure.digest_of('move', body);
            previous := previous || coalesce('\x01'::bytea || old_moves[k], '\x00'::bytea);
            seal := seal + perdure.part('head', f[j], digest) - perdure.part('head', f[j], old_moves[k]);
            INSERT INTO perdure.heads (tenant, space, timeline, version, commit, sealed, move, record, row_id)
            VALUES (t, sp.id, f[j], n[i] + 1, f[j + 2], n[i + 1] = 1, digest, body, to_rows[k])
            ON CONFLICT (tenant, space, timeline) DO UPDATE SET version = excluded.version, commit = excluded.commit,
                sealed = excluded.sealed, move = excluded.move, record = excluded.record, row_id = excluded.row_id;
        END LOOP;
        FOR k IN 1..rows LOOP
            IF row_of[k] IS NOT NULL THEN
                i := n_rows + 5 * (k - 1); j := f_rows + 5 * (k - 1);
                INSERT INTO perdure.log (tenant, space, row_id, digest, prev, jump, depth, turn, sequence, events, unnumbered, run,
                    op_id, intent, position, chain, previous, pack, state, needs, link)
                VALUES (t, sp.id, row_of[k], CASE WHEN n[i] = 2 OR depth_of[k] IS NOT NULL THEN f[j] END, prev_of[k],
                    jump_of[k], depth_of[k], turn_of[k], sequence_of[k], events_of[k],
                    CASE WHEN depth_of[k] IS NOT NULL THEN nullif(n[i + 4], 0) END, run_of[k],
                    CASE WHEN k = rows THEN op END, CASE WHEN k = rows THEN wanted END,
                    CASE WHEN k = rows THEN nullif(number, 0) END, CASE WHEN k = rows THEN two END,
                    CASE WHEN k = rows AND moves > 0 THEN previous END, f[j + 2], f[j + 3], f[j + 4],
                    CASE WHEN k = rows THEN link END);
            END IF;
        END LOOP;
        INSERT INTO perdure.keys (tenant, space, key, row_id)
        SELECT DISTINCT t, sp.id, e.key, row_of[e.place] FROM unnest(wanted_keys, places) e(key, place)
        WHERE row_of[e.place] IS NOT NULL;
    END IF;
    place := concat_ws(' ', seal, CASE WHEN n[1] & 32 = 32 THEN encode(link, 'hex') END, place);
    UPDATE perdure.spaces s SET rows = next_row, seal = seal, position = pos, chain = chain, link = link
    WHERE s.tenant = t AND s.name = space_name;
    code := 'done'; at := next_row;
END $$;

-- What a writer calls for whose space others wait; `together.sql` says how they share a commit.
CREATE OR REPLACE PROCEDURE perdure.apply_together(
    t text, space_name bytea, op bytea, wanted bytea, n bigint[], f bytea[], wanted_keys bigint[], places integer[],
    OUT code text, OUT at integer, OUT number bigint, OUT one bytea, OUT two bytea, OUT now_us bigint,
    OUT generation bigint, OUT follower bigint, OUT clock text, OUT place text, OUT moved bytea
) LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    mine bigint; other perdure.requests; hit record; is_first boolean := false; made bigint[]; looks integer := 0;
    turn constant bigint := perdure.turn_of(t, space_name);
    gate bigint := perdure.gate_of(t, space_name);  -- one of two; the other is `gate # 1`
    durability constant text := current_setting('synchronous_commit');
    flushed constant text := replace(durability, 'off', 'on');
BEGIN
    n[1] := n[1] & ~8;  -- the turn is taken here
    PERFORM set_config('perdure.tenant', t, true);
    INSERT INTO perdure.requests (tenant, space, op, intent, n, f, keys, places)
    VALUES (t, space_name, op, wanted, n, f, wanted_keys, places) RETURNING id INTO mine;
    COMMIT;
    PERFORM set_config('perdure.tenant', t, true), set_config('lock_timeout', '5s', true);
    LOOP
        PERFORM FROM perdure.requests r WHERE r.tenant = t AND r.space = space_name AND r.id = mine;
        EXIT WHEN NOT FOUND;
        is_first := pg_try_advisory_xact_lock(turn);
        EXIT WHEN is_first;
        IF pg_try_advisory_xact_lock(gate) OR pg_try_advisory_xact_lock(gate # 1) THEN
            is_first := pg_advisory_xact_lock(turn) IS NOT NULL;
            EXIT;
        END IF;
        PERFORM pg_advisory_lock_shared(gate), pg_advisory_unlock_shared(gate);  -- all who wait go on together
        gate := gate # 1; looks := looks + 1;
        -- A writer that has not come to leave its gate, or to close one, needs the processor.
        IF looks > 3 THEN PERFORM pg_sleep(0.001); END IF;
    END LOOP;
    now_us := perdure.now_us(); clock := perdure.clock_name();
    IF is_first THEN
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
    CROSS JOIN LATERAL (SELECT * FROM perdure.keys x WHERE x.tenant = t AND x.space = s.id AND x.key = n[7] OFFSET 0) e
    CROSS JOIN LATERAL (SELECT * FROM perdure.log x WHERE x.tenant = t AND x.space = s.id AND x.row_id = e.row_id OFFSET 0) l
    WHERE s.tenant = t AND s.name = space_name AND l.op_id = op AND l.intent = wanted AND l.dropped IS NULL LIMIT 1;
    IF NOT FOUND THEN
        PERFORM pg_advisory_xact_lock(turn);
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

CREATE OR REPLACE FUNCTION perdure.drop_space(t text, space_name bytea, why bytea) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    sp perdure.spaces; hit record; freed bigint; more bigint;
    end_link bytea := int8send(0); numbers integer[] := '{}'; links bytea[] := '{}';
BEGIN
    PERFORM set_config('lock_timeout', '5s', true), set_config('perdure.tenant', t, true);
    SELECT * INTO sp FROM perdure.spaces s WHERE s.tenant = t AND s.name = space_name FOR UPDATE;
    IF NOT FOUND THEN RETURN 0; END IF;
    SELECT coalesce(sum(length(pack) + coalesce(length(state), 0)), 0) INTO freed FROM perdure.log WHERE tenant = t AND space = sp.id AND dropped IS NULL;
    SELECT coalesce(sum(length(body)), 0) INTO more FROM perdure.entries WHERE tenant = t AND space = sp.id;
    freed := freed + more;
    SELECT coalesce(sum(length(value)), 0) INTO more FROM perdure.cells WHERE tenant = t AND space = sp.id;
    freed := freed + more;
    -- What is left of each write has a link of its own; a write that was dropped earlier has it already.
    FOR hit IN SELECT row_id, op_id, intent, dropped, link FROM perdure.log
        WHERE tenant = t AND space = sp.id AND op_id IS NOT NULL ORDER BY row_id LOOP
        IF hit.dropped IS NOT NULL AND hit.link IS NOT NULL THEN
            end_link := hit.link;
        ELSE
            end_link := perdure.linked(end_link, hit.op_id, hit.intent, NULL, NULL, NULL, hit.row_id);
            numbers := array_append(numbers, hit.row_id); links := array_append(links, end_link);
        END IF;
    END LOOP;
    DELETE FROM perdure.keys WHERE tenant = t AND space = sp.id;
    DELETE FROM perdure.log WHERE tenant = t AND space = sp.id AND op_id IS NULL;
    UPDATE perdure.log l SET digest = NULL, prev = NULL, jump = NULL, depth = NULL, turn = NULL, sequence = NULL, events = NULL,
        unnumbered = NULL, run = NULL, position = NULL, chain = NULL, previous = NULL, pack = NULL, state = NULL, needs = NULL,
        dropped = coalesce(l.dropped, why), link = u.link
    FROM unnest(numbers, links) u(row_id, link) WHERE l.tenant = t AND l.space = sp.id AND l.row_id = u.row_id;
    INSERT INTO perdure.keys (tenant, space, key, row_id)
        SELECT t, sp.id, perdure.op_key(op_id), row_id FROM perdure.log WHERE tenant = t AND space = sp.id;
    DELETE FROM perdure.heads WHERE tenant = t AND space = sp.id;
    DELETE FROM perdure.entries WHERE tenant = t AND space = sp.id;
    UPDATE perdure.cells c SET revision = revision + (value IS NOT NULL)::int, value = NULL, position = 0, listed = false,
        is_found = false,
        digest = perdure.cell_digest(space_name, name, revision + (value IS NOT NULL)::int, NULL, 0, false)
    WHERE tenant = t AND space = sp.id;
    UPDATE perdure.spaces SET seal = perdure.sum_of(t, sp.id), position = 0, chain = NULL, link = end_link, generation = generation + 1
    WHERE tenant = t AND name = space_name;
    RETURN freed;
END $$;
