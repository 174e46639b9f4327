"""The reference pages say what the code does: each list on them is compared with its source."""

from __future__ import annotations

import ast
import inspect
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import pytest

import perdure
from perdure import errors
from perdure.engines.sqlite.schema import APPLICATION_ID, SCHEMA_VERSION
from perdure.history import revisions, writer
from perdure.history.merge import resolve
from perdure.history.tree import encoding
from perdure.history.verify import report
from perdure.ledger import call_identity, calls
from perdure.model import artifact, canonical, names
from perdure.model.artifact import Artifact
from perdure.model.commit import Act, Changeset, Commit, MoveRecord
from perdure.model.digest import Kind, digest_of
from perdure.model.event import CATALOGUE
from perdure.model.limits import Limits
from perdure.model.patch import OPS_VERSION, Op, Verb
from perdure.model.run import REASONS, Usage
from perdure.runtime.agent import builtin_tools
from perdure.runtime.calls import settlement
from perdure.runtime.run import child
from perdure.runtime.session import lease_keeper
from perdure.runtime.tools import execution, result
from tests.architecture.source import modules, walk
from tests.docs.schema import columns_of_new_store
from tests.docs.tables import Section, codes, page, plain
from tests.engines.postgres.server import MISSING

ABSENT = ", may be absent"


def section(name: str, title: str) -> Section:
    """The section of a page with that title."""
    found = [each for each in page(name) if plain(each.title) == title]
    assert len(found) == 1, f"{name} has {len(found)} sections '{title}'"
    return found[0]


def first_column(name: str, title: str) -> list[str]:
    """The names in the first column of the first table of a section."""
    return [codes(row[0])[0] for row in section(name, title).tables[0].rows]


# ---- events


def spoken(hint: Any, *, optional: bool) -> str:
    """A type as the pages write it."""
    if get_origin(hint) in (typing.Union, types.UnionType):
        bare = next(each for each in get_args(hint) if each is not type(None))
        return _bare(bare) + (ABSENT if optional else " or null")
    return _bare(hint) + (ABSENT if optional else "")


class _Digest:
    """What a digest is for this test: to the program it is a text like any other."""


def _bare(hint: Any) -> str:
    if get_origin(hint) is typing.Literal:
        *most, last = get_args(hint)
        return f"{', '.join(most)} or {last}"
    return {
        str: "text",
        int: "integer",
        bool: "boolean",
        float: "number",
        _Digest: "digest",
        Usage: "object",
    }[hint]


def fields_of(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The fields of an event's type that not every event has, with their types as the page writes them."""
    hints = typing.get_type_hints(kind, localns={"Digest": _Digest})
    optional = {each.name for each in msgspec.structs.fields(kind) if not each.required}
    common = {"id", "provider", "model"}
    return {
        name: spoken(hints[name], optional=name in optional)
        for name in kind.__struct_fields__
        if name not in common
    }


def described() -> dict[str, Section]:
    """The sections of the catalogue by event type."""
    return {codes(each.title)[0]: each for each in page("reference/events.md") if codes(each.title)}


def test_the_catalogue_of_events_is_complete() -> None:
    """Every type has a section, in the order of the code, and no section is of a type that is not there."""
    assert list(described()) == list(CATALOGUE)


@pytest.mark.parametrize("name", CATALOGUE)
def test_an_event_has_the_fields_that_the_page_says(name: str) -> None:
    """Field by field: its name, its type, and whether it may be absent."""
    rows = described()[name].tables[0].rows

    assert {codes(row[0])[0]: plain(row[1]) for row in rows} == fields_of(CATALOGUE[name])


def test_events_marked_as_written_are_written() -> None:
    """Each type that some code of the package makes is marked, and no other."""
    marked = {name for name, each in described().items() if "*Written now*" in each.text}
    made = set(_made())

    assert {name for name, kind in CATALOGUE.items() if kind.__name__ in made} == marked


def _made() -> Iterator[str]:
    """The names that are called anywhere in the package but in what ships for tests, where an event is named."""
    named = re.compile("|".join(kind.__name__ for kind in CATALOGUE.values()))
    for module in modules():
        if not module.name.startswith("perdure.testing") and named.search(module.text):
            for node in walk(module.tree):
                # An event is made with keywords; in a `match` its class is a pattern, not a call.
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.keywords:
                    yield node.func.id


# ---- errors


def drawn(kind: type[BaseException], indent: str = "") -> Iterator[str]:
    """The tree of errors as the page draws it."""
    below = [each for each in _in_order() if each.__base__ is kind or kind in each.__bases__]
    for each in below:
        last = each is below[-1]
        yield f"{indent}{'└──' if last else '├──'} {each.__name__}"
        yield from drawn(each, indent + ("    " if last else "│   "))


def _in_order() -> list[type[errors.PerdureError]]:
    """The errors in the order in which they are defined."""
    return [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.PerdureError)
    ]


def attributes_of(kind: type[errors.PerdureError]) -> set[str]:
    """The facts that an error always has: what the constructors below the root set on it."""
    found: set[str] = set()
    for each in kind.__mro__[: kind.__mro__.index(errors.PerdureError)]:
        if "__init__" in vars(each):
            tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(each)))
            found |= {node.attr for node in walk(tree) if _is_set(node)}
    return found


def _is_set(node: ast.AST) -> typing.TypeGuard[ast.Attribute]:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def test_the_tree_of_errors_is_the_one_in_the_code() -> None:
    """Families and their members, drawn as they are."""
    text = section("reference/errors.md", "Errors").text

    assert "\n".join(["PerdureError", *drawn(errors.PerdureError)]) in text


def test_every_error_is_described_with_its_attributes() -> None:
    """What a program can read from an error is in the table."""
    rows = section("reference/errors.md", "Errors").tables[0].rows
    documented = {codes(row[0])[0]: set(codes(row[1])) for row in rows}

    assert documented == {kind.__name__: attributes_of(kind) for kind in _in_order()}


def test_every_error_has_its_exit_code() -> None:
    """The table of exit codes says of every error what the command line exits with."""
    from perdure.cli.errors import code_of

    rows = section("reference/errors.md", "On the command line").tables[0].rows
    documented = {name: int(row[0]) for row in rows for name in codes(row[1])}

    for kind in _in_order()[1:]:
        family = next(each.__name__ for each in kind.__mro__ if each.__name__ in documented)
        assert documented[family] == code_of(kind.__new__(kind)), kind


# ---- limits

LIMITS: dict[str, dict[str, float]] = {
    "JSON values": {"DEPTH_MAX": canonical.DEPTH_MAX, "INT_MAX": canonical.INT_MAX},
    "Names": {
        "PATH_BYTES_MAX": names.PATH_BYTES_MAX,
        "PATH_SEGMENTS_MAX": names.PATH_SEGMENTS_MAX,
        "ID_BYTES_MAX": names.ID_BYTES_MAX,
    },
    "Runs and calls": {
        "steps": perdure.Stop().steps or 0,
        "TTL_SECONDS": lease_keeper.TTL_SECONDS,
        "POLL_SECONDS": lease_keeper.POLL_SECONDS,
        "ATTEMPTS_MAX": settlement.ATTEMPTS_MAX,
        "PREVIEW_BYTES": result.PREVIEW_BYTES,
        "PAGE_CHARACTERS": builtin_tools.PAGE_CHARACTERS,
        "KEY_BYTES_MAX": call_identity.KEY_BYTES_MAX,
        "WHY_MAX": calls.WHY_MAX,
        "CHILD_DEPTH_MAX": child.CHILD_DEPTH_MAX,
        "GRACE_S": execution.GRACE_S,
    },
    "Inside": {
        "BRANCHES_MAX": encoding.BRANCHES_MAX,
        "CHUNK_BYTES": artifact.CHUNK_BYTES,
        "MEDIA_TYPE_BYTES_MAX": encoding.MEDIA_TYPE_BYTES_MAX,
        "BETWEEN_MAX": writer.BETWEEN_MAX,
        "SHARED_MAX": resolve.SHARED_MAX,
        "REBASES_MAX": writer.REBASES_MAX,
        "PREFIX_MIN": revisions.PREFIX_MIN,
        "FAULTS_MAX": report.FAULTS_MAX,
    },
    "Set when a store is opened": msgspec.structs.asdict(Limits()),
}


@pytest.mark.parametrize("title", LIMITS)
def test_limits_are_those_of_the_code(title: str) -> None:
    """Each limit with its number."""
    rows = section("reference/limits.md", title).tables[0].rows

    assert {codes(row[0])[0]: float(row[1].replace(",", "")) for row in rows} == LIMITS[title]


def test_reserved_names_are_all_named() -> None:
    """Reasons and prefixes that a program may not use."""
    documented = codes(section("reference/limits.md", "Names").text)

    assert {*REASONS, *names.KERNEL_PREFIXES} <= set(documented)


# ---- the stored format

FORMAT = "reference/stored-format.md"


def test_all_kinds_are_described() -> None:
    """In the order of the code, which is the order in which stores number them."""
    assert first_column(FORMAT, "Kinds") == list(Kind)


@pytest.mark.parametrize(
    ("title", "kind"),
    [("Changeset", Changeset), ("Commit", Commit), ("Move", MoveRecord), ("Artifact", Artifact)],
)
def test_records_have_the_fields_that_the_page_says(title: str, kind: type[msgspec.Struct]) -> None:
    """By their names in JSON, and whether they may be absent."""
    rows = section(FORMAT, title).tables[0].rows
    documented = {codes(row[0])[0]: row[1].endswith(ABSENT) for row in rows}

    assert documented == {each.encode_name: not each.required for each in msgspec.structs.fields(kind)}


def test_all_ops_are_described() -> None:
    """Each with its fields; the verbs of an edit and the acts of a move are named."""
    rows = section(FORMAT, "Patch").tables[0].rows
    ops: list[type[msgspec.Struct]] = list(get_args(Op))

    assert {codes(row[0])[0]: codes(row[1]) for row in rows} == {
        str(op.__struct_config__.tag): list(op.__struct_fields__) for op in ops
    }
    assert set(get_args(Verb)) <= set(codes(section(FORMAT, "Patch").text))
    assert set(Act) <= set(codes(section(FORMAT, "Move").text))


def test_versions_are_those_of_the_code() -> None:
    """What a reader of a store checks first."""
    rows = section(FORMAT, "Versions").tables[0].rows
    documented = {row[0]: codes(row[1])[0] for row in rows}
    on_server = documented.pop("PostgreSQL schema")

    assert documented == {
        "objects": "perdure/1",
        "nodes of the map": str(encoding.encode(encoding.Leaf([], []))[0] >> 4),
        "ops of a patch": str(OPS_VERSION),
        "SQLite schema": str(SCHEMA_VERSION),
    }
    if not MISSING:
        from perdure.engines.postgres import schema

        assert on_server == str(schema.SCHEMA_VERSION)
    assert f"0x{APPLICATION_ID:X}" in section(FORMAT, "SQLite").text


EXAMPLES = [
    [plain(row[0]), *(codes(cell)[0] for cell in row[1:])]
    for row in section(FORMAT, "Examples").tables[0].rows
]


@pytest.mark.parametrize(("what", "kind", "body", "digest"), EXAMPLES, ids=[row[0] for row in EXAMPLES])
def test_a_pinned_example_has_its_digest(what: str, kind: str, body: str, digest: str) -> None:
    """The page's bytes give the page's digest."""
    assert digest_of(Kind(kind), body.encode()) == digest


@pytest.mark.parametrize("url", ["memory:", "store.db"])
def test_the_examples_are_what_a_store_holds(url: str, tmp_path: Path) -> None:
    """The operations that the page tells of leave these very objects, on every engine."""
    address = url if url == "memory:" else str(tmp_path / url)
    with perdure.open(address, clock=lambda: 1_700_000_000_000_000) as store:
        thread = store.thread("groceries", agent="shopper")
        with thread.change("add milk", op_id="op-1") as change:
            change.say("user", "We need milk.", id="msg-1")
            change.put("/list.json", ["milk"])
        with thread.change("add eggs", op_id="op-2") as change:
            change.append("/list.json", "eggs")
        thread.undo(op_id="op-3")
        thread.artifacts.put(b"hello\n")

        space = thread._space
        facts, _ = space.engine.scan(space.name, limit=1_000)

    stored = {
        (str(fact.kind), fact.digest, fact.object.body.decode("latin-1")) for fact in facts if fact.object
    }
    assert {(kind, digest, body) for _, kind, body, digest in EXAMPLES} <= stored


# ---- SQL


@pytest.fixture
def schema(tmp_path: Path) -> dict[str, list[str]]:
    """The tables and views of a new store, and their columns."""
    return columns_of_new_store(tmp_path)


def test_tables_are_those_of_the_schema(schema: dict[str, list[str]]) -> None:
    """Each table with its columns, in order."""
    rows = section(FORMAT, "SQLite").tables[0].rows
    documented = {codes(row[0])[0]: codes(row[1]) for row in rows}

    assert documented == {name: columns for name, columns in schema.items() if name in documented}


def test_views_are_those_of_the_schema(schema: dict[str, list[str]]) -> None:
    """Tables and views together are everything that the schema has, and each view has its columns, in order."""
    views = {
        codes(each.title)[0]: each
        for each in page("reference/sql.md")
        if codes(each.title) and each.level == 2
    }
    views.pop("perdure sql")
    documented = {name: [codes(row[0])[0] for row in each.tables[0].rows] for name, each in views.items()}

    assert documented == {name: columns for name, columns in schema.items() if name in documented}
    assert {*documented, *first_column(FORMAT, "SQLite")} == set(schema)


# ---- the glossary


def test_a_word_has_one_meaning() -> None:
    """No word is defined twice."""
    rows = section("reference/glossary.md", "Glossary").tables[0].rows
    words = [word.strip().lower() for row in rows for word in plain(row[0]).split(",")]

    assert sorted(set(words)) == sorted(words)
