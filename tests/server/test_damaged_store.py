"""A store with damaged pages, served: a list shows the other threads, and what is damaged is never said to be absent."""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import perdure
from perdure import Agent
from perdure.errors import Corrupt
from perdure.testing import Script, say, use
from tests.server.client import Client, serving
from tests.server.test_serve import started
from tests.store.test_damaged_pages import PAGE, pages_of

THREADS = 3
TURNS = 12


@perdure.tool(effect="read_only")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount} " * 20


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with some threads, which is closed."""
    place = tmp_path_factory.mktemp("whole")
    with perdure.open(place / "a.db", durability="process_crash") as store:
        for number in range(THREADS):
            answers = [
                answer for turn in range(TURNS) for answer in (use("pay", amount=turn), say("Paid. " * 30))
            ]
            thread = store.thread(f"t{number}", agent=Agent("payer", backend=Script(*answers), tools=[pay]))
            for turn in range(TURNS):
                thread.run(f"Pay {turn}. " * 20)
    return place / "a.db"


@contextmanager
def zeroed(whole: Path, place: Path, at: int) -> Generator[Client]:
    """Serve a copy in which 290 bytes are zero."""
    body = bytearray(whole.read_bytes())
    body[at : at + 290] = bytes(290)
    place.write_bytes(body)
    with perdure.open(place) as store, serving(store) as client:
        yield client


def served(whole: Path, tmp_path: Path, table: str, *offsets: int) -> Iterator[tuple[int, Client]]:
    """Serve a copy for each page of a table and each offset in it, where it can still be opened."""
    for at in (page * PAGE - offset for page in pages_of(whole, table) for offset in offsets):
        try:
            with zeroed(whole, tmp_path / f"{at}.db", at) as client:
                yield at, client
        except Corrupt:
            continue  # it is not opened


def test_a_damaged_thread_is_listed_as_such_beside_the_others(whole: Path, tmp_path: Path) -> None:
    """Whatever is damaged the list has all threads, and marks those whose rows it cannot fill."""
    names = [f"t{number}" for number in range(THREADS)]
    marked: set[int] = set()

    for at, client in served(whole, tmp_path, "log", 5_000):
        answer = client.get("/v1/threads").json
        if "'store'" in answer.get("detail", ""):
            continue  # the list itself is damaged
        listed = answer["threads"]
        assert [each["id"] for each in listed] == names, at
        marked |= {at} if any(each["damaged"] for each in listed) else set()

    assert len(marked) > 2


def test_no_row_of_a_whole_store_is_marked(whole: Path) -> None:
    """Control: without damage no row says that there is any."""
    with perdure.open(whole, read_only=True) as store, serving(store) as client:
        listed = client.get("/v1/threads").json["threads"]

    assert [each["damaged"] for each in listed] == [False] * THREADS


def test_what_is_damaged_is_never_said_to_be_absent(whole: Path, tmp_path: Path) -> None:
    """Where the index that finds commits is damaged, turns say that they are; no thread that is listed is a 404."""
    found: list[int] = []
    damaged: list[bool] = []

    for _, client in served(whole, tmp_path, "places", 400, 2_500, 5_000):
        for number in range(THREADS):
            answers = [client.get(f"/v1/threads/t{number}{path}") for path in ("", "/turns", "/graph")]
            found += [each.status for each in answers]
            damaged += [each["damaged"] for each in answers[1].json.get("turns", ())]

    assert set(found) <= {200, 500}
    assert any(damaged)


def test_the_log_of_the_command_has_the_cause_that_an_answer_leaves_to_it(
    whole: Path, tmp_path: Path
) -> None:
    """`perdure serve` prints the place that no client is told, for the request that met it and for no other."""
    middle = pages_of(whole, "log")[len(pages_of(whole, "log")) // 2]  # of the thread in the middle
    body = bytearray(whole.read_bytes())
    body[(middle - 1) * PAGE : (middle - 1) * PAGE + 290] = bytes(290)
    (tmp_path / "store.db").write_bytes(body)
    process, client = started(tmp_path)

    answers = [client.get(f"/v1/threads/t{number}/turns").json for number in range(THREADS)]
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()

    told = [each["advice"] for each in answers if "advice" in each]
    assert told == ["The log of the server has the cause."]
    assert str(errors).count("store.db is damaged") == len(told)
