-- Writers that wait for the same space share a commit.
--
-- A writer holds the lock of its space until its commit is flushed, so that no reader sees what a crash could take back.
-- One flush for each write would be the speed of a space that many processes write to, such as `store`, where every thread
-- begins.  So a writer that finds the turn taken leaves its write in a table and waits.  Whoever has the turn next makes all
-- the writes that it finds there, one after another by `apply`, and commits them with one flush.  The others find theirs
-- recorded.  A write that was refused is tried again by its own writer, which so learns why.
--
-- Of those who wait, one has a gate of the space alone and is the next to have the turn; the others ask for that gate
-- together, and its commit, which makes their writes too, lets all of them go at once.  A space has two gates: while the
-- writer behind one has the turn, the next one waits behind the other.  A lock that was asked for together is had by each
-- of them until it runs again, so with one gate the others would find it neither free nor closed, and ask in a loop.
--
-- The table is not logged: a crash empties it, and the writers, who have no answer, send their writes again.  What is left
-- of a writer that went away is made within seconds or never, and its op_id is looked up as always.

-- The advisory lock of the writers of a space.
CREATE FUNCTION perdure.turn_of(t text, space bytea) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT hashtextextended(encode(space, 'hex'), hashtextextended(t, 0)) $$;

-- The first of the two advisory locks of those who wait; the second is the same number with its last bit changed.
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
