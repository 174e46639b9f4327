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
from perdure.engines.sqlite.search import SqliteSearch
from perdure.errors import Invalid, NotFound, Unavailable, Unsupported, WrongStore
from perdure.model.names import shown_address
from perdure.runtime.agent.agent import Agent
from perdure.store.open_store import open as open_store
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

    with raises(
        Unsupported,
        "engine_not_installed",
        scheme="theirs",
        known=["memory", "postgresql", "sqlite", "yours"],
    ):
        opened("theirs://host/store")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("url", ["postgresql://host/db", "postgres://host/db"])
def test_a_driver_that_is_not_installed_names_the_extra(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine whose driver is an extra says which one."""
    for name in [name for name in sys.modules if name.startswith("perdure.engines.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with raises(Unsupported, "driver_not_installed") as refused:
        opened(url)

    assert "perdure[postgres]" in refused.value.advice


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


# ---- what belongs to a store


class Index:
    """What another package's search is, as far as the registry knows."""

    def __init__(self, url: str, owner: str, *, read_only: bool) -> None:
        self.given = url, owner, read_only


class Views:
    """What another package's SQL is."""

    def __init__(self, url: str, *, entries: object) -> None:
        self.given = url, entries


def refuse_vectors(url: str) -> None:
    """What a server without the extension says."""
    raise Unsupported(f"{url} has no vectors.", code="vector_package_missing")


def registered(installed: list[EntryPoint], group: str, what: object) -> None:
    """Register something of this module for the scheme `elsewhere`."""
    installed.append(EntryPoint("elsewhere", f"{__name__}:{getattr(what, '__name__', '')}", group))


def test_a_search_index_is_found_by_the_scheme_of_its_store(installed: list[EntryPoint]) -> None:
    """The index of an owner is what the engine's package opens; one without an owner is in memory everywhere."""
    registered(installed, "perdure.search", Index)

    found = registry.open_search("elsewhere://host/db", "ann", read_only=True)

    assert isinstance(found, Index)
    assert found.given == ("elsewhere://host/db", "ann", True)
    assert isinstance(registry.open_search("elsewhere://host/db", None, read_only=True), SqliteSearch)


def test_a_store_without_a_search_of_its_own_is_searched_in_memory(installed: list[EntryPoint]) -> None:
    """As every store but a file was."""
    assert isinstance(registry.open_search("elsewhere://host/db", "ann", read_only=False), SqliteSearch)


def test_views_in_sql_are_found_by_the_scheme_of_their_store(installed: list[EntryPoint]) -> None:
    """A store without any says so, and shows no password."""
    with raises(Unsupported, "not_sqlite", url="elsewhere://ann@host/db"):
        registry.open_sql("elsewhere://ann:secret@host/db", entries=lambda nodes, root: ())
    registered(installed, "perdure.sql", Views)

    found = registry.open_sql("elsewhere://host/db", entries=lambda nodes, root: ())

    assert isinstance(found, Views)
    assert found.given[0] == "elsewhere://host/db"


def test_vectors_are_checked_by_the_scheme_of_the_store(installed: list[EntryPoint]) -> None:
    """The package that SQLite needs is not asked for elsewhere."""
    registered(installed, "perdure.vectors", refuse_vectors)

    registry.check_vectors("agents.db")
    with raises(Unsupported, "vector_package_missing"):
        registry.check_vectors("elsewhere://host/db")


def test_our_own_schemes_cannot_be_taken_over(installed: list[EntryPoint]) -> None:
    """A package that registers `sqlite` or `memory` is not even loaded."""
    installed += [EntryPoint(scheme, "nowhere:Nothing", "perdure.search") for scheme in ("sqlite", "memory")]

    for url in ("sqlite:///agents.db", "memory:", "agents.db"):
        assert isinstance(registry.open_search(url, "ann", read_only=False), SqliteSearch)


# ---- passwords


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:secret@host/db", "postgresql://ann@host/db"),
        ("postgresql://ann@host/db", "postgresql://ann@host/db"),
        ("postgresql://host/db", "postgresql://host/db"),
        ("postgresql://ann:se:c@ret@host:5432,other:5433/db", "postgresql://ann@host:5432,other:5433/db"),
        (
            "postgresql://host/db?user=ann&password=secret&x=1",
            "postgresql://host/db?user=ann&password=***&x=1",
        ),
        ("postgresql://host/db?sslpassword=secret", "postgresql://host/db?sslpassword=***"),
        ("postgresql:ann:secret@host/db", "postgresql:ann@host/db"),
        ("POSTGRESQL://ann:secret@host/db", "POSTGRESQL://ann@host/db"),
        ("elsewhere://:secret@host", "elsewhere://@host"),
        ("agents.db", "agents.db"),
        ("/srv/a:b@c.db", "/srv/a:b@c.db"),
        ("sqlite:////srv/a:b@c.db", "sqlite:////srv/a:b@c.db"),
        ("memory:a:b@c", "memory:a:b@c"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    """What remains still says which store it is; paths are shown as they are."""
    assert shown_address(url) == shown


def test_no_face_of_a_store_shows_the_password(installed: list[EntryPoint]) -> None:
    """Neither its url and repr, nor the errors that name it, whatever they are asked for."""
    registered(installed, "perdure.engines", open_elsewhere)
    url = "elsewhere://ann:secret@host/db"

    with open_store(url) as store:
        with pytest.raises(WrongStore) as wrong:
            store.thread("t", agent=Agent("a", object_storage="elsewhere://ben:hidden@host/other"))
        same = store.thread("t", agent=Agent("a", object_storage="elsewhere://ann:other@host/db"))

    assert store.url == "elsewhere://ann@host/db"
    texts = [repr(store), store.url, str(wrong.value), repr(wrong.value), str(wrong.value.facts), repr(same)]
    assert not any(word in text for text in texts for word in ("secret", "hidden"))


def test_control_an_address_that_is_shown_as_given_has_its_password(
    installed: list[EntryPoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same look finds it where nothing is left out."""
    registered(installed, "perdure.engines", open_elsewhere)
    monkeypatch.setattr("perdure.store.store.shown_address", lambda url: url)

    with open_store("elsewhere://ann:secret@host/db") as store:
        assert "secret" in repr(store)
