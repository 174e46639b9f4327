-- The tables of the store; `schema.py` describes them.

CREATE TABLE perdure.spaces (
    tenant text COLLATE "C" NOT NULL,
    name bytea NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    rows integer NOT NULL DEFAULT 0,
    position bigint NOT NULL DEFAULT 0,
    chain bytea,
    generation bigint NOT NULL DEFAULT 0,
    followed_until bigint NOT NULL DEFAULT 0,
    follower bigint NOT NULL DEFAULT 0,  -- 0: several
    seal numeric NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, name),
    UNIQUE (id, tenant)  -- not led by the tenant: the planner could take it for a way to a name
) WITH (fillfactor = 50);

CREATE TABLE perdure.log (
    tenant text COLLATE "C" NOT NULL,
    row_id integer NOT NULL,
    space bigint NOT NULL,
    sequence bigint,
    run bigint,
    position bigint,
    prev integer,
    jump integer,
    depth integer,
    turn integer,
    events integer,
    unnumbered integer,  -- turns up to the commit that have no number; NULL: none
    digest bytea,
    op_id bytea,
    intent bytea,
    chain bytea,
    previous bytea,
    dropped bytea,
    needs bytea,
    pack bytea,
    state bytea,
    PRIMARY KEY (tenant, space, row_id)
) WITH (toast_tuple_target = 4096);  -- a turn's rows are about 2 KB, and whole rows take less room than parts of them
ALTER TABLE perdure.log ALTER COLUMN pack SET STORAGE EXTERNAL, ALTER COLUMN state SET STORAGE EXTERNAL;

CREATE TABLE perdure.keys (
    tenant text COLLATE "C" NOT NULL,
    row_id integer NOT NULL,
    space bigint NOT NULL,
    key bigint NOT NULL
);
CREATE INDEX keys_by_key ON perdure.keys (tenant, space, key);

CREATE TABLE perdure.heads (
    tenant text COLLATE "C" NOT NULL,
    space bigint NOT NULL,
    version bigint NOT NULL,
    timeline bytea NOT NULL,
    commit bytea,
    sealed boolean NOT NULL,
    move bytea NOT NULL,
    row_id integer,
    record bytea NOT NULL,
    PRIMARY KEY (tenant, space, timeline)
) WITH (fillfactor = 50);

CREATE TABLE perdure.cells (
    tenant text COLLATE "C" NOT NULL,
    space bigint NOT NULL,
    revision bigint NOT NULL,
    position bigint NOT NULL,
    name bytea NOT NULL,
    value bytea,
    listed boolean NOT NULL,
    is_found boolean NOT NULL,
    digest bytea NOT NULL,
    PRIMARY KEY (tenant, space, name)
) WITH (fillfactor = 70);
-- `is_found` is a column, because an update of a column that an index names has to touch every index.
CREATE INDEX cells_listed ON perdure.cells (tenant, name, space) WHERE is_found;

CREATE TABLE perdure.entries (
    tenant text COLLATE "C" NOT NULL,
    space bigint NOT NULL,
    position bigint NOT NULL,
    chain bytea NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (tenant, space, position)
);

CREATE TABLE perdure.holders (
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    closed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, name)
);
