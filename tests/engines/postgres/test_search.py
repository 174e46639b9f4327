"""The search index on a server: shared by processes, without the extension, and when something is wrong with it."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

import perdure
from perdure import Store
from perdure.engines import registry
from perdure.engines.search_contract import Filters, SearchIndex
from perdure.errors import Unsupported
from tests.coded import raises
from tests.engines.postgres.server import MISSING, Server
from tests.engines.postgres.stores import new_url, url_of
from tests.engines.test_search import EVERYTHING, WIDTH, digest, row, vector
from tests.memory.remembering import by_letters

if TYPE_CHECKING or not MISSING:
    from perdure.engines.postgres import search

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

ROOT = digest("root")
ITEMS = [f"{word} {number}" for number in range(20) for word in ("oslo", "fjord", "tea", "train", "late")]


def opened(url: str) -> SearchIndex:
    """The index of one owner, as another process would open it."""
    return registry.open_search(url, "ann", read_only=False)


@pytest.fixture
def url(postgres: Server) -> str:
    """The address of a store that is empty."""
    made = new_url()
    perdure.open(made).close()
    return made


@pytest.fixture
def indexes(url: str) -> Iterator[tuple[SearchIndex, SearchIndex]]:
    """One index, opened twice, with two items."""
    with closing(opened(url)) as one, closing(opened(url)) as other:
        one.move(None, ROOT, (), [row(1, "oslo"), row(2, "tea")])
        one.learn(ROOT, "m", {}, width=WIDTH)
        yield one, other


# ---- each text is embedded once


def search_in_process(url: str, log: str, barrier: object) -> None:
    """Search once, with an embedding function that is slow and writes down what it was given."""

    def counting(given: list[str]) -> list[list[float]]:
        with Path(log).open("a", encoding="utf-8") as file:
            file.write("".join(f"{text}\n" for text in given))
        time.sleep(0.05)
        return by_letters(given)

    with perdure.open(url, embed=counting) as store:
        barrier.wait()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        assert len(store.memory("ann").search("oslo", limit=100)) == 100


def test_processes_that_search_at_once_embed_each_text_once(url: str, tmp_path: Path) -> None:
    """Whichever comes first makes the vector, and the others wait for it."""
    with perdure.open(url) as store:
        for text in ITEMS:
            store.memory("ann").add(text, id=text.replace(" ", "-"))
    spawn = multiprocessing.get_context("spawn")
    barrier, log = spawn.Barrier(3), tmp_path / "log"
    children = [spawn.Process(target=search_in_process, args=(url, str(log), barrier)) for _ in range(3)]

    for child in children:
        child.start()
    for child in children:
        child.join(60)

    assert [child.exitcode for child in children] == [0] * 3
    embedded = [line for line in log.read_text(encoding="utf-8").splitlines() if line in ITEMS]
    assert sorted(embedded) == sorted(ITEMS)


def embedded_by_two(url: str) -> list[str]:
    """What two openings embed that search at once."""
    asked, barrier = list[str](), Barrier(2)

    def counting(given: list[str]) -> list[list[float]]:
        asked.extend(text for text in given if text in ITEMS)
        time.sleep(0.05)
        return by_letters(given)

    def search(store: Store) -> None:
        barrier.wait()
        store.memory("ann").search("oslo")

    with perdure.open(url, embed=counting) as one, perdure.open(url, embed=counting) as other:
        for text in ITEMS:
            one.memory("ann").add(text, id=text.replace(" ", "-"))
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(search, [one, other]))
    return asked


def test_control_without_claims_texts_are_embedded_twice(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that is over at once is no claim."""
    assert len(embedded_by_two(url)) == len(ITEMS)
    monkeypatch.setattr(search, "CLAIM_SECONDS", 0.0)

    assert len(embedded_by_two(new_url())) > len(ITEMS)


def test_what_was_claimed_is_learned_although_the_index_moved_on(
    indexes: tuple[SearchIndex, SearchIndex],
) -> None:
    """The vector of a version does not depend on the root, so it is not made again."""
    one, other = indexes
    claimed = dict(one.without_vector(ROOT, limit=9, claim=True) or ())
    other.move(ROOT, digest("next"), [row(2, "").path], [row(3, "late")])

    assert not one.learn(ROOT, "m", {path: vector(path) for path in claimed}, width=WIDTH)

    assert other.without_vector(digest("next"), limit=9, claim=True) == [(row(3, "").path, digest(3))]
    assert set(other.vectors([digest(1), digest(2)], "m")) == {digest(1)}


def test_a_claim_ends(indexes: tuple[SearchIndex, SearchIndex], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process that was killed has claimed is claimed by the next one."""
    monkeypatch.setattr(search, "CLAIM_SECONDS", 0.3)
    one, other = indexes
    claimed = one.without_vector(ROOT, limit=9, claim=True)

    assert one.without_vector(ROOT, limit=9, claim=True) == claimed
    assert other.without_vector(ROOT, limit=9) == claimed  # a look claims nothing and waits for nothing
    assert other.without_vector(ROOT, limit=9, claim=True) == claimed


def test_closing_releases_claims(indexes: tuple[SearchIndex, SearchIndex]) -> None:
    """Nobody waits for a process that has ended its work."""
    one, other = indexes
    claimed = one.without_vector(ROOT, limit=9, claim=True)
    begun_at = time.monotonic()
    one.close()

    assert other.without_vector(ROOT, limit=9, claim=True) == claimed
    assert time.monotonic() - begun_at < search.CLAIM_SECONDS / 2


# ---- tenants


def test_tenants_have_indexes_of_their_own(postgres: Server) -> None:
    """Owners of the same name in two tenants share nothing, and move no score."""
    found = list[object]()
    for texts in (["oslo", "tea"], ["oslo", "oslo oslo", "fjord"], ["oslo", "tea"]):
        with perdure.open(new_url(), embed=by_letters) as store:
            for text in texts:
                store.memory("ann").add(text, id=text.replace(" ", "-"))
            found.append([(each.id, each.score) for each in store.memory("ann").search("oslo")])

    assert found[0] == found[2] != found[1]


# ---- without the extension


@pytest.fixture
def role(postgres: Server, database: str) -> Iterator[str]:
    """A role that owns the database and may not make the extension."""
    name = f"owner_{database}"
    postgres.sql(f"CREATE ROLE {name} LOGIN", f"ALTER DATABASE {database} OWNER TO {name}")
    yield name
    postgres.sql(f"ALTER DATABASE {database} OWNER TO postgres")
    postgres.sql(f"DROP OWNED BY {name} CASCADE", database=database)
    postgres.sql(f"DROP ROLE {name}")


def test_without_the_extension_words_are_searched_and_nothing_is_made_half(
    postgres: Server, database: str, role: str
) -> None:
    """Asked for vectors where there are none, a store is not made; without them it is, and can have them later."""
    url, there = (
        postgres.url(database, user=role),
        "SELECT count(*) FROM pg_namespace WHERE nspname = 'perdure'",
    )
    with raises(Unsupported, "vector_extension_missing", extension="vector"):
        perdure.open(url, embed=by_letters)
    assert postgres.sql(there, database=database) == [(0,)]

    with perdure.open(url) as store:
        store.memory("ann").add("aisle seats", id="seat")
        assert [each.id for each in store.memory("ann").search("seats")] == ["seat"]
    with raises(Unsupported, "vector_extension_missing"):
        perdure.open(url, embed=by_letters)
    with closing(opened(url)) as index, raises(Unsupported, "vector_extension_missing"):
        index.near(ROOT, vector(1), EVERYTHING, limit=1)

    postgres.sql("CREATE EXTENSION vector", database=database)
    with perdure.open(url, embed=by_letters) as store:
        assert [each.legs for each in store.memory("ann").search("seats")] == [("text", "vector")]


def test_an_extension_in_another_schema_is_used(postgres: Server, database: str) -> None:
    """Where an administrator has put it is found, whatever the search path says."""
    postgres.sql('CREATE SCHEMA "Extra one"', 'CREATE EXTENSION vector SCHEMA "Extra one"', database=database)

    with perdure.open(postgres.url(database), embed=by_letters) as store:
        store.memory("ann").add("aisle seats", id="seat")
        assert [each.legs for each in store.memory("ann").search("seats")] == [("text", "vector")]


def test_a_role_without_rights_to_the_index_searches_in_memory(postgres: Server, database: str) -> None:
    """The index is derived: whoever may read the store can search it."""
    reader = f"reader_{database}"
    with perdure.open(postgres.url(database)) as store:
        store.memory("ann").add("aisle seats", id="seat")
    postgres.sql(
        f"CREATE ROLE {reader} LOGIN",
        f"GRANT USAGE ON SCHEMA perdure TO {reader}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA perdure TO {reader}",
        f"REVOKE ALL ON perdure.memory_rows FROM {reader}",
        database=database,
    )

    with perdure.open(postgres.url(database, user=reader), read_only=True) as store:
        assert [each.id for each in store.memory("ann").search("seats")] == ["seat"]

    postgres.sql(f"DROP OWNED BY {reader}", database=database)
    postgres.sql(f"DROP ROLE {reader}")


# ---- when something is wrong


def test_an_index_that_lies_is_made_anew(postgres: Server) -> None:
    """What it says is compared with the map; the control is that it does lie."""
    url = url_of("lied-to")
    with perdure.open(url) as store:
        for word in ("oslo", "fjord", "tea"):
            store.memory("ann").add(word, id=word)
        before = [(each.id, each.score) for each in store.memory("ann").search("oslo")]
        root = store._resources.memories.of("ann").sight().root
        postgres.sql(
            "UPDATE perdure.memory_rows SET item = 'tea', digest = '\\x00' WHERE tenant = 'lied-to' AND item = 'oslo'"
        )
        with closing(registry.open_search(url, "ann", read_only=True)) as index:
            assert [hit.item for hit in index.found(root, ["oslo"], Filters(), limit=1) or ()] == ["tea"]

        assert [(each.id, each.score) for each in store.memory("ann").search("oslo")] == before


def test_a_search_survives_lost_connections(postgres: Server, url: str) -> None:
    """They are made again."""
    with perdure.open(url, embed=by_letters) as store:
        store.memory("ann").add("oslo", id="oslo")
        before = [(each.id, each.score) for each in store.memory("ann").search("oslo")]
        postgres.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'perdure'"
        )

        assert [(each.id, each.score) for each in store.memory("ann").search("oslo")] == before


def test_closing_a_store_closes_what_its_searches_opened(postgres: Server, url: str) -> None:
    """The indexes of all owners share a few connections, and none is left."""
    named = f"{url}&application_name=owners"
    with perdure.open(named, embed=by_letters) as store:
        for owner in ("ann", "bob", "eve"):
            store.memory(owner).add("oslo", id="oslo")
            store.memory(owner).search("oslo")
        asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'owners'"
        ((many,),) = postgres.sql(asked)
        assert isinstance(many, int)
        assert many <= 3

    time.sleep(0.2)
    assert postgres.sql(asked) == [(0,)]


# ---- somebody edits its tables


SPOILED = (
    "UPDATE perdure.memory_indexes SET root = ''",
    "UPDATE perdure.memory_indexes SET root = set_byte(root, 32, 1)",
    "UPDATE perdure.memory_indexes SET items = 0",
    "UPDATE perdure.memory_indexes SET items = 0, words = 0",
    "UPDATE perdure.memory_indexes SET words = words + 1",
    "UPDATE perdure.memory_rows SET digest = ''",
    "UPDATE perdure.memory_rows SET length = NULL",
    "UPDATE perdure.memory_rows SET item = 'other'",
    "UPDATE perdure.memory_rows SET memory = memory + 1",
    "DELETE FROM perdure.memory_indexes",
    "DELETE FROM perdure.memory_rows",
    "DELETE FROM perdure.memory_rows WHERE words @@ 'oslo'",
)


def found_after(edit: str, url: str, postgres: Server) -> list[list[str]]:
    """Remember two items, edit the tables of the index, and search in a new opening."""
    with perdure.open(url) as store:
        store.memory("ann").add("Oslo in May")
        store.memory("ann").add("tea with milk")
        store.memory("ann").search("oslo")
    where = f"tenant = '{url.rpartition('=')[2]}'"
    postgres.sql(f"{edit} {'AND' if ' WHERE ' in edit else 'WHERE'} {where}")
    with perdure.open(url) as store:
        return [[item.text for item in store.memory("ann").search(word)] for word in ("oslo", "tea")]


@pytest.mark.parametrize("edit", SPOILED)
def test_an_index_that_was_spoiled_is_built_again(edit: str, url: str, postgres: Server) -> None:
    """It is derived: a count that is wrong, a row that is lost, or one that the map contradicts."""
    assert found_after(edit, url, postgres) == [["Oslo in May"], ["tea with milk"]]


def test_an_index_of_another_format_is_built_again(url: str, postgres: Server) -> None:
    """The words of the older format are gone, and with them its vectors."""
    calls = list[int]()

    def counting(given: list[str]) -> list[list[float]]:
        calls.append(len(given))
        return by_letters(given)

    where = f"WHERE tenant = '{url.rpartition('=')[2]}'"
    with perdure.open(url, embed=counting) as store:
        store.memory("ann").add("Oslo 🙂", id="smile")
        store.memory("ann").search("oslo")
    postgres.sql(f"UPDATE perdure.memory_rows SET words = 'oslo:1D' {where}")
    postgres.sql(f"UPDATE perdure.memory_indexes SET root = substr(root, 1, 32) {where}")
    calls.clear()

    with perdure.open(url, embed=counting) as store:
        found = store.memory("ann").search("🙂")

    assert [(each.id, each.legs) for each in found] == [("smile", ("text",))]
    assert sum(calls) == 3, "the probe, the query and the item"


def test_other_words_of_a_row_are_not_noticed(url: str, postgres: Server) -> None:
    """Control: the same look finds what an edit has hidden; the words of the index are bound by nothing."""
    edit = "UPDATE perdure.memory_rows SET words = 'fjord:1D' WHERE words @@ 'oslo'"

    assert found_after(edit, url, postgres) == [[], ["tea with milk"]]
