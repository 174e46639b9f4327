"""The registry: which address leads to which engine, and what is said where none does."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType

import pytest

from perdure.engines import registry
from perdure.engines.contract import Engine
from perdure.engines.memory import MemoryEngine
from perdure.engines.registry import open_engine
from perdure.errors import Invalid, NotFound, Unavailable, Unsupported
from perdure.testing.engines.builders import SPACE, Pen, value, write
from tests.coded import raises


def opened(url: str, *, read_only: bool = False, create: bool = True) -> Engine:
    """The engine at `url`."""
    return open_engine(url, read_only=read_only, create=create, durability="power_loss")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, bool, bool, str]]:
    """What the SQLite engine is asked to open, in place of opening it."""
    calls: list[tuple[Path, bool, bool, str]] = []
    stand_in = ModuleType("perdure.engines.sqlite")

    def open_sqlite(path: Path, *, read_only: bool, create: bool, durability: str) -> Engine:
        calls.append((path, read_only, create, durability))
        return MemoryEngine()

    stand_in.__dict__["open_sqlite"] = open_sqlite
    monkeypatch.setitem(sys.modules, "perdure.engines.sqlite", stand_in)
    return calls


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """The entry points that other packages have registered."""
    points: list[EntryPoint] = []
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda **wanted: EntryPoints(points).select(**wanted)
    )
    return points


def open_elsewhere(url: str, *, read_only: bool, create: bool, durability: str) -> Engine:
    """What another package registers."""
    engine = MemoryEngine()
    engine.apply(write("op", value(f"{url} {read_only} {create} {durability}"), space=url))
    return engine


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("agents.db", "agents.db"),
        ("./agents.db", "agents.db"),
        ("some dir/agents", "some dir/agents"),
        ("/srv/agents.db", "/srv/agents.db"),
        ("sqlite:///agents.db", "agents.db"),
        ("sqlite:///sub/agents.db", "sub/agents.db"),
        ("sqlite:////srv/agents.db", "/srv/agents.db"),
        ("SQLite:///agents.db", "agents.db"),
        ("C:\\agents.db", "C:\\agents.db"),
        ("./post:office.db", "post:office.db"),
        ("100%.db", "100%.db"),
    ],
)
def test_a_path_is_a_sqlite_store(url: str, path: str, asked: list[tuple[Path, bool, bool, str]]) -> None:
    """With or without the scheme; one letter before a colon is a drive, not a scheme."""
    open_engine(url, read_only=False, create=True, durability="process_crash")
    open_engine(url, read_only=True, create=False, durability="power_loss")

    assert asked == [(Path(path), False, True, "process_crash"), (Path(path), True, False, "power_loss")]


@pytest.mark.parametrize(
    "url", ["", "sqlite:", "sqlite:///", "sqlite://host/agents.db", "sqlite:agents.db", "a\0b"]
)
def test_an_address_that_names_no_file_is_refused(
    url: str, asked: list[tuple[Path, bool, bool, str]]
) -> None:
    """The error says that nothing was opened and what to write instead."""
    with raises(Invalid, "url_names_no_file", url=url):
        opened(url)

    assert asked == []


def test_sqlites_own_name_for_memory_is_refused(asked: list[tuple[Path, bool, bool, str]]) -> None:
    """A file called ':memory:' is hardly what was meant."""
    with raises(Invalid, "url_names_no_file", url=":memory:"):
        opened(":memory:")

    assert asked == []


def test_memory_is_a_new_store_each_time() -> None:
    """Two openings share nothing."""
    Pen(opened("memory:")).commit("milk")

    assert list(opened("memory:").spaces(limit=9)) == []


def test_memory_with_a_name_is_one_store() -> None:
    """All who open it see the same, and closing one leaves the others."""
    one, other = opened("memory:shared-by-name"), opened("memory:shared-by-name")
    Pen(one).commit("milk")
    one.close()

    assert list(other.spaces(limit=9)) == [SPACE]
    assert list(opened("memory:another-name").spaces(limit=9)) == []


def test_memory_that_is_not_there_is_not_made_by_reading() -> None:
    """Only an opening that may create makes one."""
    for url in ("memory:", "memory:never-opened"):
        with raises(NotFound, "store_not_found", path=url):
            opened(url, create=False)
        with raises(NotFound, "store_not_found", path=url):
            opened(url, read_only=True)


def test_memory_opened_read_only_takes_no_writes() -> None:
    """It shows what others write, and refuses to write itself."""
    writer = opened("memory:read-only")
    reader = opened("memory:read-only", read_only=True)
    Pen(writer).commit("milk")

    assert list(reader.spaces(limit=9)) == [SPACE]
    with raises(Unavailable, "opened_read_only"):
        reader.apply(write("op"))
    with raises(Unavailable, "opened_read_only"):
        reader.drop(SPACE, why="no")


def test_durability_is_one_of_two_words() -> None:
    """A typo does not quietly mean the weaker one."""
    with raises(Invalid, "durability_unknown", durability="powerloss"):
        open_engine("memory:", read_only=False, create=True, durability="powerloss")


def test_another_package_serves_its_scheme(installed: list[EntryPoint]) -> None:
    """The entry point of that name is called with the address and the same options."""
    installed.append(EntryPoint("yours", f"{__name__}:open_elsewhere", registry.GROUP))

    engine = opened("yours://host/store", create=False)

    assert list(engine.spaces(limit=9)) == ["yours://host/store"]
    facts, _ = engine.scan("yours://host/store", limit=9)
    assert [fact.object and fact.object.body for fact in facts] == [
        b"yours://host/store False False power_loss"
    ]


def test_an_unknown_scheme_names_what_there_is(installed: list[EntryPoint]) -> None:
    """The error says which engines exist and how another one comes."""
    installed.append(EntryPoint("yours", f"{__name__}:open_elsewhere", registry.GROUP))

    with raises(Unsupported, "engine_not_installed", scheme="theirs", known=["memory", "sqlite", "yours"]):
        opened("theirs://host/store")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("url", ["postgresql://host/db", "postgres://host/db"])
def test_a_scheme_of_an_extra_names_the_extra(url: str) -> None:
    """What we ship separately is said by name."""
    with raises(Unsupported, "engine_not_installed") as refused:
        opened(url)

    assert "PostgreSQL" in refused.value.advice


def test_a_package_that_cannot_be_loaded_is_unsupported(installed: list[EntryPoint]) -> None:
    """The reason is in the message, and the import error is the cause."""
    installed.append(EntryPoint("broken", "no_such_module_here:open", registry.GROUP))

    with raises(Unsupported, "engine_not_loaded", scheme="broken") as refused:
        opened("broken:store")

    assert isinstance(refused.value.__cause__, ImportError)


def test_two_packages_for_one_scheme_are_refused(installed: list[EntryPoint]) -> None:
    """Which of them was meant would be a guess."""
    installed += [
        EntryPoint("yours", f"{__name__}:{name}", registry.GROUP) for name in ("open_elsewhere", "opened")
    ]

    with raises(Invalid, "engine_ambiguous", scheme="yours"):
        opened("yours:store")
