-- The tables of the search indexes; `search.py` describes them.

CREATE TABLE perdure.memory_indexes (
    tenant text COLLATE "C" NOT NULL,
    owner bytea NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    items bigint NOT NULL DEFAULT 0,
    words bigint NOT NULL DEFAULT 0,
    root bytea,
    model bytea,
    PRIMARY KEY (tenant, owner)
);

CREATE TABLE perdure.memory_rows (
    tenant text COLLATE "C" NOT NULL,
    memory bigint NOT NULL,
    length integer,
    path bytea NOT NULL,
    item bytea NOT NULL,
    digest bytea NOT NULL,
    kind bytea NOT NULL,
    scope bytea NOT NULL,
    words tsvector,
    PRIMARY KEY (tenant, memory, path)
);
CREATE INDEX memory_rows_by_digest ON perdure.memory_rows (tenant, memory, digest);

CREATE TABLE perdure.memory_vectors (
    tenant text COLLATE "C" NOT NULL,
    memory bigint NOT NULL,
    digest bytea NOT NULL,
    maker bytea,
    claimed_until timestamptz,
    PRIMARY KEY (tenant, memory, digest)
);

-- Adds what needs the extension for vectors; false if the database does not have it, or the role may not add it.
CREATE FUNCTION perdure.add_vectors() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    place text;
BEGIN
    CREATE EXTENSION IF NOT EXISTS vector;
    SELECT quote_ident(n.nspname) INTO place FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
    WHERE e.extname = 'vector';
    EXECUTE 'ALTER TABLE perdure.memory_vectors ADD COLUMN IF NOT EXISTS embedding ' || place || '.vector';
    RETURN true;
EXCEPTION WHEN OTHERS THEN
    RETURN false;
END $$;
SELECT perdure.add_vectors();
