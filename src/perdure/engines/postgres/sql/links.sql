-- Each write has a link to the write before it in its space, and the row of the space has the newest.
--
-- Writes from before have none: the chain of their space begins after them, with the number of the last of their rows.
-- `unlinked` is the last space that may have such writes; in later ones a write without a link is damage.
--
-- A client that opened the store before this could still send the short statement of `next_commit.py` without a link.  It
-- names the generation that it knows, so another one refuses it, and `apply` tells that client to upgrade.
--
-- Row security hides all tenants from the owner too, so it is put aside for the two statements that read all spaces.
ALTER TABLE perdure.log ADD COLUMN link bytea;
ALTER TABLE perdure.spaces ADD COLUMN link bytea NOT NULL DEFAULT '\x0000000000000000';
ALTER TABLE perdure.meta ADD COLUMN unlinked bigint NOT NULL DEFAULT 0;
ALTER TABLE perdure.spaces NO FORCE ROW LEVEL SECURITY;
UPDATE perdure.meta SET unlinked = (SELECT coalesce(max(id), 0) FROM perdure.spaces);
UPDATE perdure.spaces SET generation = generation + 1, link = int8send(rows::bigint);
ALTER TABLE perdure.spaces FORCE ROW LEVEL SECURITY;

