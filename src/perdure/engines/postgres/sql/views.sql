-- Names and values may hold what `text` refuses: NUL is shown as U+2400, what is not UTF-8 in hexadecimal digits.
CREATE FUNCTION perdure.shown(value bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN convert_from(replace(encode(value, 'escape'), '\000', '␀')::bytea, 'UTF8');
EXCEPTION WHEN OTHERS THEN
    RETURN '\x' || encode(value, 'hex');
END $$;

CREATE VIEW perdure.timelines WITH (security_invoker) AS
SELECT h.tenant, perdure.shown(s.name) AS space, perdure.shown(h.timeline) AS timeline, h.version,
       encode(h.commit, 'hex') AS head, h.sealed
FROM perdure.heads h JOIN perdure.spaces s ON s.tenant = h.tenant AND s.id = h.space;

CREATE VIEW perdure.records WITH (security_invoker) AS
SELECT c.tenant, perdure.shown(s.name) AS space, perdure.shown(c.name) AS name, c.revision, perdure.shown(c.value) AS value,
       c.listed
FROM perdure.cells c JOIN perdure.spaces s ON s.tenant = c.tenant AND s.id = c.space WHERE c.value IS NOT NULL;

CREATE VIEW perdure.ledger WITH (security_invoker) AS
SELECT e.tenant, perdure.shown(s.name) AS space, e.position, encode(e.chain, 'hex') AS chain, perdure.shown(e.body) AS body
FROM perdure.entries e JOIN perdure.spaces s ON s.tenant = e.tenant AND s.id = e.space;

-- The turn is the number that people see: how many messages began a turn up to the commit.
CREATE VIEW perdure.state_commits WITH (security_invoker) AS
SELECT l.tenant, perdure.shown(s.name) AS space, encode(l.digest, 'hex') AS hash, encode(p.digest, 'hex') AS parent_hash,
       l.depth, l.turn - coalesce(l.unnumbered, 0) AS turn, l.sequence
FROM perdure.log l JOIN perdure.spaces s ON s.tenant = l.tenant AND s.id = l.space
LEFT JOIN perdure.log p ON p.tenant = l.tenant AND p.space = l.space AND p.row_id = l.prev WHERE l.depth IS NOT NULL;
