"""The schema: tables, views, its version and the upgrade from older ones.

`log` has one row per commit, or per write without one, in the order of writing.  Its
text columns are plain, so that stock `sqlite3` reads every event and message; the rest
is in `pack`.  `prev` and `jump` are rows of ancestors on the line of first parents: the
parent, and one further back such that any ancestor is reached in a logarithmic number
of steps.  `places` finds rows by key; it is filled in batches, and rows above
`indexed_upto` are found by reading their own `keys`.

The views have the columns of the documents that Perdure implements.  Those that need
stored objects (`state_snapshots`, `state_values`) work where `perdure sql` has added
its functions; all others work in stock `sqlite3`.

A trigger, a constraint or an index that another program added would change the effect of a write.  So a database
is refused unless every object of ours is there exactly as this module makes it, and no trigger is.
Tables of other programs are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, cast

import apsw

from perdure.engines.sqlite.database import Database
from perdure.engines.sqlite.errors import is_text
from perdure.errors import Corrupt, Invalid, NotFound, Unsupported

__all__ = [
    "APPLICATION_ID",
    "COUNTERS",
    "SCHEMA_VERSION",
    "check",
    "check_objects",
    "create",
    "foreign_objects",
    "lay",
    "read_objects",
]

APPLICATION_ID = 0x50657264  # "Perd"
SCHEMA_VERSION = 7
COUNTERS = frozenset(
    ("barrier", "generation", "indexed_upto", "listed", "log_base", "log_mark", "spaces")
)  # the rows of `meta`

_OBJECTS = "SELECT CAST(name AS BLOB), CAST(type AS BLOB), CAST(tbl_name AS BLOB), CAST(sql AS BLOB) FROM sqlite_schema"
_TABLES = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('barrier', 0), ('indexed_upto', 0), ('generation', 0), ('spaces', 0), ('listed', 0),
    ('log_mark', abs(random() % 72057594037927935) + 1), ('log_base', 0);
CREATE TABLE spaces(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE log(
    id INTEGER PRIMARY KEY,
    space INTEGER NOT NULL,
    prev INTEGER, jump INTEGER,
    depth INTEGER, turn INTEGER, sequence INTEGER, events INTEGER,
    run INTEGER,
    keys BLOB NOT NULL,
    at INTEGER, digest BLOB, root BLOB, fields BLOB,
    changeset TEXT, digests BLOB, spans TEXT, bodies TEXT,
    pack BLOB NOT NULL,
    timeline TEXT
);
CREATE TABLE places(place INTEGER PRIMARY KEY);
CREATE TABLE stretches(
    space INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    PRIMARY KEY (space, first)
) WITHOUT ROWID;
CREATE TABLE heads(
    space INTEGER NOT NULL, timeline TEXT NOT NULL,
    move TEXT NOT NULL, digest BLOB NOT NULL, commit_row INTEGER,
    PRIMARY KEY (space, timeline)
) WITHOUT ROWID;
CREATE TABLE cells(
    space INTEGER NOT NULL, name TEXT NOT NULL,
    revision INTEGER NOT NULL, value TEXT, listed INTEGER NOT NULL,
    position INTEGER NOT NULL, digest BLOB NOT NULL,
    PRIMARY KEY (space, name)
) WITHOUT ROWID;
CREATE INDEX cells_listed ON cells(name, space) WHERE listed AND value IS NOT NULL;
CREATE TABLE entries(
    space INTEGER NOT NULL, position INTEGER NOT NULL,
    chain BLOB NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (space, position)
) WITHOUT ROWID;
"""

# A run that rebased its own line has told the same events twice.  Of a group the row with the largest rank is shown.
_ONCE = """GROUP BY h.conversation_id, json_extract(e.value, '$.id')
HAVING max(2 * h.in_main + (coalesce(h.timeline, '') NOT GLOB 'run/*')) >= 0"""

_EVENTS = f"""
CREATE VIEW conversation_events AS
SELECT json_extract(e.value, '$.id') AS id, h.conversation_id, l.sequence + e.key + 1 AS sequence_number,
       json_extract(e.value, '$.type') AS event_type,
       CASE WHEN s.value IS NULL THEN iif(json_extract(e.value, '$.type') = 'message.appended', json_remove(e.value, '$.body'), e.value)
            WHEN json_extract(e.value, '$.type') = 'message.appended' THEN json_set(json_remove(e.value, '$.body'), '$.message', json(
                CAST(substr(CAST(l.bodies AS BLOB), 1 + json_extract(s.value, '$[1]'),
                            json_extract(s.value, '$[2]')) AS TEXT)))
            WHEN json_extract(e.value, '$.type') = 'checkpoint.created' THEN json_set(e.value, '$.state_checkpoint', json(
                CAST(substr(CAST(l.bodies AS BLOB), 1 + json_extract(s.value, '$[1]'),
                            json_extract(s.value, '$[2]')) AS TEXT)))
            ELSE json_set(e.value, '$.args_json', CAST(substr(CAST(l.bodies AS BLOB),
                1 + json_extract(s.value, '$[1]'), json_extract(s.value, '$[2]')) AS TEXT))
       END AS payload_json,
       json_extract(e.value, '$.provider') AS provider, json_extract(e.value, '$.model') AS model,
       strftime('%Y-%m-%dT%H:%M:%fZ', l.at / 1e6, 'unixepoch') AS created_at, h.timeline, h.in_main
FROM thread_commits h JOIN log l ON l.id = h.row JOIN json_each(l.changeset, '$.events') e
LEFT JOIN json_each(l.spans) s ON json_extract(s.value, '$[0]') = e.key
{_ONCE};
"""

# What no timeline holds any more was undone.  The run or the call by hand that wrote it knows where, since a run may
# write on a line of its own; else the row does.  NULL in a row with a commit is `main`.
_COMMITS = """
CREATE VIEW thread_commits AS
WITH RECURSIVE beside(timeline, row) AS (
    SELECT timeline, commit_row FROM timelines
    WHERE timeline <> 'main' AND commit_row IS NOT NULL AND commit_row NOT IN (SELECT row FROM history)
    UNION
    SELECT b.timeline, l.prev FROM beside b JOIN log l ON l.id = b.row
    WHERE l.prev IS NOT NULL AND l.prev NOT IN (SELECT row FROM history)
), placed(row, timeline) AS (
    SELECT row, 'main' FROM history UNION ALL SELECT row, min(timeline) FROM beside GROUP BY row
)
SELECT t.id AS conversation_id, l.id AS row, coalesce(
           p.timeline,
           (SELECT coalesce(json_extract(c.value, '$.timeline'), 'main') FROM cells c WHERE c.space = l.space AND c.name =
               'run/' || json_extract(l.changeset, '$.run_id')),
           (SELECT coalesce(json_extract(c.value, '$.timeline'), 'main') FROM cells c WHERE c.space = l.space AND c.name =
               replace(json_extract(l.changeset, '$.run_id'), 'call:', 'call/')),
           l.timeline, 'main'
       ) AS timeline, coalesce(p.timeline = 'main', 0) AS in_main
FROM threads t JOIN log l ON l.space = t.space AND l.digest IS NOT NULL LEFT JOIN placed p ON p.row = l.id;
"""

# No event tells the arguments of a call by hand.  They are the first words of the row that the call entered the ledger
# with, whose first key is the beginning of their digest; words that were there before are where they were said first.
_TOOLS = """
CREATE VIEW tool_events AS
WITH told(conversation_id, call_id, id, args_json, in_main) AS (
    SELECT conversation_id, json_extract(payload_json, '$.call'),
           max(iif(event_type = 'tool.call.requested', id, NULL)),
           max(json_extract(payload_json, '$.args_json')), max(in_main)
    FROM conversation_events WHERE event_type IN ('tool.call.requested', 'tool.call.started', 'tool.call.completed')
    GROUP BY 1, 2
), called(conversation_id, call_id, asked_as, at, record, space, args, args_size) AS (
    SELECT t.id, json_extract(e.body, '$.call'),
           coalesce(json_extract(e.body, '$.record.copied_from'), json_extract(e.body, '$.call')),
           json_extract(e.body, '$.at'), coalesce(c.value, json_extract(e.body, '$.record')), t.space,
           json_extract(e.body, '$.record.args'), json_extract(e.body, '$.record.args_size')
    FROM threads t JOIN entries e ON e.space = t.space AND json_type(e.body, '$.record') = 'object'
    LEFT JOIN cells c ON c.space = e.space AND c.name = 'call/' || json_extract(e.body, '$.call')
), worded(space, row, key) AS (
    SELECT space, id, hex(substr(keys, 1, 5)) FROM log WHERE bodies IS NOT NULL
), given(space, args, args_json) AS (
    SELECT c.space, c.args, max(CAST(substr(CAST(l.bodies AS BLOB), 1, c.args_size) AS TEXT))
    FROM (SELECT DISTINCT space, args, args_size FROM called) c
    JOIN worded w ON w.space = c.space AND w.key = upper(substr(c.args, 1, 10)) JOIN log l ON l.id = w.row
    GROUP BY 1, 2
)
SELECT coalesce(a.id, c.call_id) AS id, c.conversation_id, json_extract(c.record, '$.tool') AS tool_name, c.call_id,
       coalesce(a.args_json, g.args_json, max(a.args_json) OVER (PARTITION BY c.space, c.args)) AS args_json,
       json_extract(c.record, '$.result') AS result_ref,
       json_extract(c.record, '$.key') AS idempotency_key,
       coalesce(json_extract(c.record, '$.effect'), 'external_write') AS side_effect_level,
       strftime('%Y-%m-%dT%H:%M:%fZ', c.at / 1e6, 'unixepoch') AS created_at,
       json_extract(c.record, '$.state') AS state,
       coalesce(json_extract(c.record, '$.timeline'), 'main') AS timeline, coalesce(o.in_main, a.in_main, 0) AS in_main
FROM called c LEFT JOIN told a ON a.conversation_id = c.conversation_id AND a.call_id = c.asked_as
LEFT JOIN told o ON o.conversation_id = c.conversation_id AND o.call_id = c.call_id
LEFT JOIN given g ON g.space = c.space AND g.args = c.args;
"""

_CHECKPOINTS = """
CREATE VIEW state_checkpoints AS
SELECT json_extract(payload_json, '$.checkpoint') AS id, conversation_id,
       json_extract(payload_json, '$.state_checkpoint.summary') AS summary,
       coalesce(json_extract(payload_json, '$.state_checkpoint.activeGoals'), '[]') AS active_goals_json,
       coalesce(json_extract(payload_json, '$.state_checkpoint.relevantMemoryRefs'), '[]') AS memory_refs_json,
       coalesce(json_extract(payload_json, '$.state_checkpoint.activeArtifacts'), '[]') AS artifact_refs_json, created_at,
       timeline, in_main
FROM conversation_events WHERE event_type = 'checkpoint.created';
"""

_REFERENCES = """
CREATE VIEW memory_references AS
SELECT id, conversation_id, owner, item, scope, CASE WHEN owner NOT GLOB '*[^A-Za-z0-9._~-]*'
       THEN 'mem://' || scope || '/' || owner || '/' || item END AS reference, call_id, created_at,
       timeline, in_main
FROM (SELECT id, conversation_id, json_extract(payload_json, '$.owner') AS owner,
             json_extract(payload_json, '$.item') AS item, json_extract(payload_json, '$.scope') AS scope,
             json_extract(payload_json, '$.call') AS call_id, created_at, timeline, in_main
      FROM conversation_events WHERE event_type = 'memory.written');

CREATE VIEW artifact_references AS
SELECT id, conversation_id, 'artifact://sha256/' || id AS reference, name,
       CASE WHEN name GLOB '[A-Za-z0-9]*/[A-Za-z0-9]*' AND name NOT GLOB '*[^A-Za-z0-9._/-]*'
            AND name NOT GLOB 'sha256/*' AND name NOT GLOB 'tool-results/*'
            THEN 'artifact://' || name END AS named_reference, media_type, size, created_at
FROM (SELECT substr(c.name, 10) AS id, t.id AS conversation_id, json_extract(c.value, '$.name') AS name,
             json_extract(c.value, '$.media_type') AS media_type, json_extract(c.value, '$.size') AS size,
             strftime('%Y-%m-%dT%H:%M:%fZ', json_extract(c.value, '$.at') / 1e6, 'unixepoch') AS created_at
      FROM threads t JOIN cells c ON c.space = t.space
      WHERE c.name >= 'artifact/' AND c.name < 'artifact0' AND c.value IS NOT NULL);
"""

# A step is told by the message that the model wrote in it.  Of a run that rebased its own line each step counts once.
_RUNS = f"""
CREATE VIEW steps AS
SELECT json_extract(e.value, '$.id') AS id, h.conversation_id, json_extract(l.changeset, '$.run_id') AS run_id,
       json_extract(e.value, '$.provider') AS provider, json_extract(e.value, '$.model') AS model,
       coalesce(json_extract(e.value, '$.usage.input_tokens'), 0) AS input_tokens,
       coalesce(json_extract(e.value, '$.usage.cached_tokens'), 0) AS cached_tokens,
       coalesce(json_extract(e.value, '$.usage.cache_write_tokens'), 0) AS cache_write_tokens,
       coalesce(json_extract(e.value, '$.usage.output_tokens'), 0) AS output_tokens,
       coalesce(json_extract(e.value, '$.usage.reasoning_tokens'), 0) AS reasoning_tokens,
       json_extract(e.value, '$.cost') AS cost_usd,
       strftime('%Y-%m-%dT%H:%M:%fZ', l.at / 1e6, 'unixepoch') AS created_at, h.timeline, h.in_main
FROM thread_commits h JOIN log l ON l.id = h.row JOIN json_each(l.changeset, '$.events') e
WHERE json_extract(e.value, '$.type') = 'message.appended' AND json_extract(e.value, '$.role') = 'assistant'
      AND json_extract(l.changeset, '$.run_id') IS NOT NULL
{_ONCE};

CREATE VIEW runs AS
WITH spent(conversation_id, run_id, steps, input_tokens, cached_tokens, cache_write_tokens, output_tokens, cost_usd,
           unpriced) AS (
    SELECT conversation_id, run_id, count(*), sum(input_tokens), sum(cached_tokens), sum(cache_write_tokens),
           sum(output_tokens), sum(cost_usd), sum(cost_usd IS NULL)
    FROM steps GROUP BY 1, 2
)
SELECT substr(c.name, 5) AS id, t.id AS conversation_id, json_extract(c.value, '$.agent') AS agent_id, t.owner,
       coalesce(json_extract(c.value, '$.timeline'), 'main') AS timeline, json_extract(c.value, '$.state') AS state,
       json_extract(c.value, '$.backend') AS backend, json_extract(c.value, '$.parent_run') AS parent_run_id,
       json_extract(c.value, '$.parent.thread') AS parent_conversation_id, json_extract(c.value, '$.why') AS why,
       json_extract(c.value, '$.stop.reason') AS stop_reason,
       strftime('%Y-%m-%dT%H:%M:%fZ', json_extract(c.value, '$.begun_at') / 1e6, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', json_extract(c.value, '$.at') / 1e6, 'unixepoch') AS changed_at,
       coalesce(s.steps, 0) AS steps, coalesce(s.input_tokens, 0) AS input_tokens,
       coalesce(s.cached_tokens, 0) AS cached_tokens, coalesce(s.cache_write_tokens, 0) AS cache_write_tokens,
       coalesce(s.output_tokens, 0) AS output_tokens, s.cost_usd, coalesce(s.unpriced, 0) AS unpriced_steps
FROM threads t JOIN cells c ON c.space = t.space AND c.name >= 'run/' AND c.name < 'run0' AND c.value IS NOT NULL
LEFT JOIN spent s ON s.conversation_id = t.id AND s.run_id = substr(c.name, 5);

CREATE VIEW ledger AS
SELECT t.id AS conversation_id, e.position, json_extract(e.body, '$.call') AS call_id,
       coalesce(json_extract(e.body, '$.record.tool'), json_extract(c.value, '$.tool')) AS tool_name,
       json_extract(e.body, '$.to') AS state, json_extract(e.body, '$.via') AS via_json,
       coalesce(json_extract(e.body, '$.by'), json_extract(e.body, '$.decision.by')) AS by,
       coalesce(json_extract(e.body, '$.set.why'), json_extract(e.body, '$.record.why'),
                json_extract(e.body, '$.decision.why')) AS why,
       strftime('%Y-%m-%dT%H:%M:%fZ', json_extract(e.body, '$.at') / 1e6, 'unixepoch') AS created_at,
       coalesce(json_extract(c.value, '$.timeline'), 'main') AS timeline
FROM threads t JOIN entries e ON e.space = t.space
LEFT JOIN cells c ON c.space = e.space AND c.name = 'call/' || json_extract(e.body, '$.call');
"""

# The message of a repeat is what `ledger/tickets` says of the earlier call: what is known now.
_APPROVALS = """
CREATE VIEW approvals AS
SELECT json_extract(c.value, '$.id') AS id, t.id AS conversation_id, json_extract(c.value, '$.call') AS call_id,
       json_extract(c.value, '$.tool') AS tool_name, json_extract(c.value, '$.run') AS run_id,
       json_extract(c.value, '$.timeline') AS timeline, coalesce(json_extract(c.value, '$.action'), 'approve') AS action,
       coalesce(CASE WHEN json_extract(q.value, '$.case') = 'key' THEN 'a call with the same key'
                ELSE 'the same call to ' || json_extract(e.value, '$.tool') END
                || ', ''' || json_extract(e.value, '$.id') || ''', ' || CASE
                WHEN json_extract(q.value, '$.case') NOT IN ('unclear', 'key') THEN NULL
                WHEN json_extract(e.value, '$.state') = 'succeeded' OR json_extract(e.value, '$.evidence') IS NOT NULL
                THEN 'was done, as was found out since'
                WHEN json_extract(e.value, '$.state') = 'resolved' THEN
                    iif(json_extract(e.value, '$.outcome') = 'not_done', 'was not done', 'was done')
                    || ', as a person said since' || coalesce(': ' || json_extract(e.value, '$.why'), '')
                WHEN json_extract(e.value, '$.state') = 'failed' AND json_extract(e.value, '$.origin') IS NOT 'import'
                THEN 'failed, as was found out since'
                WHEN json_extract(e.value, '$.state') IN ('unknown', 'needs_human')
                THEN 'is ' || json_extract(e.value, '$.state') || ': it may have happened' END,
                json_extract(c.value, '$.message'), '') AS message,
       strftime('%Y-%m-%dT%H:%M:%fZ', json_extract(c.value, '$.asked_at') / 1e6, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', json_extract(c.value, '$.expires_at') / 1e6, 'unixepoch') AS expires_at,
       json_extract(c.value, '$.decision.verdict') AS decision, json_extract(c.value, '$.decision.by') AS decided_by,
       json_extract(c.value, '$.decision.why') AS decided_why,
       strftime('%Y-%m-%dT%H:%M:%fZ', json_extract(c.value, '$.decision.at') / 1e6, 'unixepoch') AS decided_at
FROM threads t JOIN cells c ON c.space = t.space
LEFT JOIN (SELECT space, name, json_extract(value, '$.parameters') AS value FROM cells
           WHERE name >= 'ticket/' AND name < 'ticket0' AND json_extract(value, '$.action') = 'repeat') q
    ON q.space = c.space AND q.name = c.name
LEFT JOIN cells e ON e.name = 'call/' || json_extract(q.value, '$.repeats')
    AND e.space = coalesce((SELECT id FROM spaces WHERE name = json_extract(q.value, '$.space')), c.space)
WHERE c.name >= 'ticket/' AND c.name < 'ticket0' AND c.value IS NOT NULL;
"""

_VIEWS = f"""
CREATE VIEW threads AS
SELECT substr(c.name, 8) AS id, json_extract(c.value, '$.agent') AS agent,
       json_extract(c.value, '$.owner') AS owner, s.id AS space, json_extract(c.value, '$.begun_at') AS begun_at
FROM cells c JOIN spaces store ON store.id = c.space AND store.name = 'store'
LEFT JOIN spaces s ON s.name = json_extract(c.value, '$.space')
WHERE c.name >= 'thread/' AND c.name < 'thread0' AND c.value IS NOT NULL;

CREATE VIEW timelines AS
SELECT t.id AS conversation_id, h.timeline, json_extract(h.move, '$.version') AS version,
       json_extract(h.move, '$.to') AS head, h.commit_row, coalesce(json_extract(h.move, '$.sealed'), 0) AS sealed
FROM threads t JOIN heads h ON h.space = t.space;

CREATE VIEW history AS
WITH RECURSIVE back(conversation_id, row) AS (
    SELECT conversation_id, commit_row FROM timelines WHERE timeline = 'main' AND commit_row IS NOT NULL
    UNION ALL
    SELECT back.conversation_id, log.prev FROM back JOIN log ON log.id = back.row WHERE log.prev IS NOT NULL
)
SELECT conversation_id, row FROM back;

{_COMMITS}
{_EVENTS}
CREATE VIEW conversations AS
SELECT t.id, t.agent AS agent_id, (
    SELECT iif(json_extract(e.value, '$.type') = 'backend.switched', json_extract(e.value, '$.to_backend'),
               json_extract(e.value, '$.provider') || ':' || json_extract(e.value, '$.model')) AS backend
    FROM history h JOIN log l ON l.id = h.row JOIN json_each(l.changeset, '$.events') e
    WHERE h.conversation_id = t.id AND backend IS NOT NULL
    ORDER BY l.sequence + e.key DESC LIMIT 1
) AS current_backend, strftime('%Y-%m-%dT%H:%M:%fZ', t.begun_at / 1e6, 'unixepoch') AS created_at
FROM threads t;

{_CHECKPOINTS}
{_TOOLS}
{_REFERENCES}
{_RUNS}
{_APPROVALS}
CREATE VIEW provider_metadata AS
SELECT json_extract(e.value, '$.id') AS id, h.conversation_id, json_extract(e.value, '$.provider') AS provider,
       json_extract(e.value, '$.model') AS model, CAST(substr(CAST(l.bodies AS BLOB),
           1 + json_extract(s.value, '$[3]'), json_extract(s.value, '$[4]')) AS TEXT) AS metadata_json,
       strftime('%Y-%m-%dT%H:%M:%fZ', l.at / 1e6, 'unixepoch') AS created_at, h.timeline, h.in_main
FROM thread_commits h JOIN log l ON l.id = h.row JOIN json_each(l.spans) s
JOIN json_each(l.changeset, '$.events') e ON json_extract(s.value, '$[0]') = e.key
WHERE json_extract(s.value, '$[4]') > 0
{_ONCE};

CREATE VIEW state_commits AS
SELECT lower(hex(l.digest)) AS hash, lower(hex(l.root)) AS snapshot_hash, lower(coalesce(hex(p.digest), '')) AS parent_hash
FROM log l LEFT JOIN log p ON p.id = l.prev WHERE l.digest IS NOT NULL;

CREATE VIEW state_snapshots AS
SELECT DISTINCT lower(hex(root)) AS hash, perdure_snapshot(space, root) AS entries FROM log WHERE root IS NOT NULL;

CREATE VIEW state_values AS
SELECT DISTINCT json_extract(o.value, '$.hash') AS hash, json_extract(o.value, '$.content') AS content
FROM log l JOIN json_each(perdure_objects(l.id)) o WHERE json_extract(o.value, '$.kind') = 'value';
"""

# The SQL that leads from a version to the next.  Stores of a version before these were never released.
_STEPS: dict[int, str] = {6: f"DROP VIEW approvals; {_APPROVALS}"}


def lay(connection: Database, place: str, *, may_write: bool) -> bool:
    """Make sure that the database has this schema; return True if it is new.

    Raises `NotFound` if there is none and it may not be written, and what `check` raises.
    """
    is_there = check(connection, place)
    if not is_there and not may_write:
        raise NotFound(
            f"{place} holds no store; nothing was opened.",
            code="store_not_found",
            advice="Create one with `perdure init`.",
            path=place,
        )
    if may_write and not (is_there and _number(connection, "user_version") == SCHEMA_VERSION):
        _transaction(connection, (lambda db: _upgrade(db, place)) if is_there else create)
    return not is_there


def check(connection: Database, place: str) -> bool:
    """True if the database has a schema at all; changes nothing.

    Raises `Invalid` if it is another program's, `Corrupt` if it has objects of ours that are changed or without our mark,
    `Unsupported` if it is from a newer Perdure, or an older one than was ever released.
    """
    try:
        application, version = _number(connection, "application_id"), _number(connection, "user_version")
    except apsw.NotADBError as error:
        if not is_text(place):
            raise  # it may be a store whose beginning is damaged
        raise _foreign(place, "a text file") from error
    if (
        version == 0
        and application == 0
        and not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").get
    ):
        return False
    if application != APPLICATION_ID:
        there, ours = read_objects(connection), _known()
        if not any(
            there.get(name) == each for name, each in ours.items()
        ):  # names alone may be another program's too
            raise _foreign(place, "a SQLite file of another program")
        raise Corrupt(
            f"{place} has the tables of a Perdure store, and its header says otherwise: it is damaged; nothing was changed.",
            code="header_damaged",
            advice="Restore a backup.",
            path=place,
        )
    if version < min(_STEPS, default=SCHEMA_VERSION):
        raise Unsupported(
            f"{place} has schema version {version}, from before the first release; nothing was changed.",
            code="schema_too_old",
            advice="Export it with the version that made it.",
            path=place,
            version=version,
        )
    if version > SCHEMA_VERSION:
        raise Unsupported(
            f"{place} has schema version {version}, and this Perdure knows versions up to {SCHEMA_VERSION}; nothing was changed.",
            code="schema_too_new",
            advice="Upgrade Perdure.",
            path=place,
            version=version,
        )
    if version == SCHEMA_VERSION:
        check_objects(connection, place)
    else:
        _check_triggers(read_objects(connection), place)  # the rest is checked once it is upgraded
    return True


def check_objects(connection: Database, place: str) -> None:
    """Raise `Corrupt`, naming the object, unless tables, indexes and views of ours are as this version makes them."""
    rows = _rows(connection)
    if rows == _known_rows():  # as in nearly every store, and each connection looks
        return
    there, ours = _by_name(rows), _known()
    _check_triggers(there, place)
    for name, known in ours.items():
        if there.get(name) != known:
            raise _not_ours(
                place, name, f"{known[0]} '{name}' is {'changed' if name in there else 'missing'}"
            )
    for name, (kind, table, _) in there.items():
        if table in ours and name not in ours:
            raise _not_ours(place, name, f"{kind} '{name}' on '{table}' was added")


def foreign_objects(connection: Database) -> list[str]:
    """Return the names of tables and views in the database that are not ours; SQLite's own count too."""
    return sorted(
        name
        for name, (kind, _, _) in read_objects(connection).items()
        if kind != "index" and name not in _known()
    )


def read_objects(connection: Database) -> dict[str, tuple[str, str, str | None]]:
    """Return the type, table and SQL of every object in the database, by name; damaged text is some other text."""
    return _by_name(_rows(connection))


def _rows(connection: Database) -> list[tuple[Any, ...]]:
    return connection.execute(_OBJECTS).fetchall()


def _by_name(rows: Sequence[Sequence[bytes | None]]) -> dict[str, tuple[str, str, str | None]]:
    found: dict[str, tuple[str, str, str | None]] = {}
    for row in rows:
        name, kind, table, sql = [None if each is None else each.decode(errors="replace") for each in row]
        found[str(name)] = str(kind), str(table), sql
    return found


@cache
def _known() -> Mapping[str, tuple[str, str, str | None]]:
    return _by_name(_known_rows())


@cache
def _known_rows() -> list[tuple[Any, ...]]:
    connection = apsw.Connection(":memory:")
    try:
        create(cast("Database", connection))
        return _rows(cast("Database", connection))
    finally:
        connection.close()


def _check_triggers(there: Mapping[str, tuple[str, str, str | None]], place: str) -> None:
    for name, (kind, table, _) in there.items():
        if kind == "trigger":
            raise _not_ours(place, name, f"trigger '{name}' on '{table}' was added")


def _foreign(place: str, what: str) -> Invalid:
    return Invalid(
        f"{place} is not a Perdure store: it is {what}; nothing was changed.",
        code="foreign_file",
        advice="Choose another path.",
        path=place,
        what=what,
    )


def _not_ours(place: str, name: str, what: str) -> Corrupt:
    return Corrupt(
        f"{place} has another schema than Perdure makes: {what}; nothing was changed.",
        code="schema_changed",
        advice="Restore a backup, or find out who changed it: what was written since may be wrong.",
        path=place,
        name=name,
    )


def create(connection: Database) -> None:
    """Make the tables and views in an empty database."""
    connection.execute(_TABLES)
    connection.execute(_VIEWS)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _upgrade(connection: Database, place: str) -> None:
    for version in range(_number(connection, "user_version"), SCHEMA_VERSION):
        connection.execute(_STEPS[version])
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    check_objects(connection, place)


def _transaction(connection: Database, work: Callable[[Database], None]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _number(connection: Database, pragma: str) -> int:
    return int(str(connection.execute(f"PRAGMA {pragma}").get))
