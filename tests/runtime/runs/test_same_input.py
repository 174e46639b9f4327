"""The same input id twice, also from two processes: one run, the same result."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Store, errors
from perdure.engines.contract import Receipt, Write
from perdure.history.space import Space
from perdure.runtime.session import lease as leases
from perdure.runtime.session.lease import Lease
from perdure.runtime.session.result import Result
from perdure.testing import Script, say, use
from tests.coded import raises
from tests.crash.processes import Pipe, running
from tests.runtime.failing import run_fails
from tests.runtime.runs.injecting import Injecting, Wire

_sent: list[str] = []


@perdure.tool(effect="external_write")
def book(flight: str) -> str:
    """Book a flight."""
    _sent.append(flight)
    return f"booked {flight}"


def planner(*, words: str = "Done.") -> Agent:
    """An agent that books one flight."""
    return Agent("planner", backend=Script(use("book", flight="SK1"), say(words)), tools=[book])


@pytest.fixture(autouse=True)
def nothing_sent() -> None:
    """Forget what other tests booked."""
    _sent.clear()


def test_the_same_id_again_gives_the_first_result(store: Store) -> None:
    """Nothing runs, nothing is committed, and the result is equal."""
    thread = store.thread("trip", agent=planner())
    first = thread.run("Book it", id="m1")
    head = thread.head

    again = store.thread("trip", agent=planner(words="Never said.")).run("Book it", id="m1")

    assert again == first
    assert thread.head == head
    assert _sent == ["SK1"]


@pytest.mark.parametrize(
    ("backend", "code"),
    [(None, "backend_missing"), (Script(say("Never said."), backend="script:else"), "backend_not_given")],
)
def test_an_input_that_was_given_before_needs_no_model(
    store: Store, backend: Script | None, code: str
) -> None:
    """Whoever asks again has no backend, or not the line's; control: a new input is refused there."""
    first = store.thread("trip", agent=planner()).run("Book it", id="m1")
    thread = store.thread("trip", agent=Agent("planner", backend=backend, tools=[book]))

    again = thread.run("Book it", id="m1")

    assert again == first
    with raises(errors.Invalid, code):
        thread.run("Book another", id="m2")
    with raises(errors.Conflict, "input_id_reused", id="m1"):
        thread.run("Book another", id="m1")
    assert _sent == ["SK1"]


def test_an_id_that_says_something_else_on_the_line_is_refused_at_once(store: Store) -> None:
    """A message by hand had the id: the error says so, and does not blame others."""
    thread = store.thread("trip", agent=planner())
    with thread.change("by hand") as change:
        change.say("user", "Something else", id="m1")

    with raises(errors.Conflict, "message_id_reused", id="m1"):
        thread.run("Book it", id="m1")

    assert (_sent, thread.runs()) == ([], [])


@pytest.mark.parametrize("own", ["input:", "renewal/", "upload:", "begin:"])
def test_no_program_can_take_the_name_of_a_write_of_ours(store: Store, own: str) -> None:
    """A change whose op_id is that of an input would stand for a run that never was."""
    thread = store.thread("trip", agent=planner())

    with raises(errors.Invalid, "op_id_reserved"):
        thread.put("/title.json", "Trip", op_id=f"{own}x")

    assert thread.log() == []


def test_another_id_is_another_run(store: Store) -> None:
    """A control: without the same id the input counts as a new one."""
    thread = store.thread("trip", agent=planner())
    first = thread.run("Book it", id="m1")

    again = store.thread("trip", agent=Agent("planner", backend=Script(say("Again.")))).run(
        "Book it", id="m2"
    )

    assert again.run != first.run


def test_the_same_id_with_other_words_is_a_conflict(store: Store) -> None:
    """An id names one input for ever."""
    thread = store.thread("trip", agent=planner())
    thread.run("Book it", id="m1")
    head = thread.head

    with raises(errors.Conflict, "input_id_reused", id="m1"):
        thread.run("Cancel it", id="m1")

    assert thread.head == head


def test_the_same_id_of_a_failed_run_fails_again_without_retry(store: Store) -> None:
    """A failed run is a result too, for a caller who wants no other."""
    agent = Agent("planner", backend=Script(lambda context: 1 / 0))  # pyright: ignore[reportArgumentType]
    thread = store.thread("trip", agent=agent)
    with pytest.raises(errors.RunFailed):
        thread.run("Book it", id="m1")
    head = thread.head

    with run_fails("ZeroDivisionError"):
        store.thread("trip", agent=planner()).run("Book it", id="m1", retry=False)

    assert thread.head == head


def test_while_the_first_lives_the_second_waits_for_it(store: Store) -> None:
    """Two callers in one process, the second in the middle of the first one's run, get the same result."""
    inside, go_on = threading.Event(), threading.Event()

    @perdure.tool(effect="read_only")
    def hold() -> str:
        inside.set()
        go_on.wait()
        return "held"

    agent = Agent("planner", backend=Script(use("hold"), say("Done.")), tools=[hold])
    found: list[Result] = []

    def run() -> None:
        found.append(store.thread("trip", agent=agent).run("go", id="m1"))

    first, second = threading.Thread(target=run), threading.Thread(target=run)
    first.start()
    inside.wait()
    second.start()
    go_on.set()
    first.join()
    second.join()

    assert found[0] == found[1]
    assert len(store.thread("trip").runs()) == 1


def test_the_first_begins_while_the_second_looks_who_is_there(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run in the way is that of the same input: it is waited for, and nobody is told that the line is busy."""
    inside, go_on = threading.Event(), threading.Event()

    @perdure.tool(effect="read_only")
    def hold() -> str:
        inside.set()
        go_on.wait()
        return "held"

    agent = Agent("planner", backend=Script(use("hold"), say("Done.")), tools=[hold])
    found: list[Result] = []
    look, first = (
        leases.look,
        threading.Thread(target=lambda: found.append(store.thread("trip", agent=agent).run("go", id="m1"))),
    )

    def looking(space: Space, timeline: str) -> tuple[Lease | None, int]:
        monkeypatch.setattr(leases, "look", look)
        first.start()
        inside.wait()
        threading.Timer(0.05, go_on.set).start()
        return look(space, timeline)

    monkeypatch.setattr(leases, "look", looking)
    second = store.thread("trip", agent=agent).run("go", id="m1")
    first.join()

    assert found == [second]


def test_the_same_id_given_in_the_middle_of_the_first_write_is_one_run(store_url: str) -> None:
    """The second caller has seen nothing of the first when it writes, and still does not run."""
    injecting = Injecting(store_url)
    with perdure.open(store_url) as other, injecting.store as store:
        thread = store.thread("trip", agent=planner())
        first: list[Result] = []

        def meanwhile(wire: Wire, write: Write) -> Receipt:
            first.append(other.thread("trip", agent=planner()).run("Book it", id="m1"))
            return wire.inner.apply(write)

        injecting.wire.arm(meanwhile, nth=1)
        second = thread.run("Book it", id="m1")

        assert second == first[0]
        assert _sent == ["SK1"]
        assert len(thread.runs()) == 1


def _racer(pipe: Pipe, path: str, effects: str) -> None:
    """Run the same input as the others, as soon as told."""

    @perdure.tool(effect="external_write")
    def pay() -> str:
        with Path(effects).open("a") as file:
            file.write("paid\n")
        return "paid"

    with perdure.open(path, durability="process_crash") as store:
        for number in range(10):
            agent = Agent("planner", backend=Script(use("pay"), say("Done.")), tools=[pay])
            thread = store.thread("trip", agent=agent)
            pipe.send("ready")
            pipe.recv()
            result = thread.run(f"Pay bill {number}", id=f"m{number}")
            pipe.send((result.run, result.status, result.text))


def test_two_processes_that_give_the_same_input_at_once_run_it_once(tmp_path: Path) -> None:
    """Ten inputs, each given by two processes at the same moment: ten runs, ten effects, equal results."""
    path, effects = str(tmp_path / "agents.db"), tmp_path / "effects"
    effects.touch()

    with running(_racer, path, str(effects)) as one, running(_racer, path, str(effects)) as two:
        for _ in range(10):
            assert [one.answer(), two.answer()] == ["ready", "ready"]
            one.tell("go")
            two.tell("go")
            assert one.answer() == two.answer()

    assert effects.read_text().count("paid") == 10
    with perdure.open(path) as store:
        assert len(store.thread("trip").runs()) == 10
        assert store.verify().ok
