"""A store with everything in it that an edit could spoil, and what its user does next.

The store has runs, calls by hand, a fork, an undo, an approval that waits, one that was given, a call
whose outcome is unknown, and keys of the thread and of the store.  `play` does what a user would do
after opening it: look around, ask for the same things again, decide, go on.  Played on a sound
store none of it has an effect outside, and all of it has one answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import msgspec

import perdure
from perdure import Agent, Thread
from perdure.engines.sqlite import open_sqlite
from perdure.engines.sqlite.format import index
from perdure.errors import PerdureError
from perdure.ledger import verify
from perdure.store.store import Store
from perdure.testing import Script, say, use

__all__ = ["Answer", "Played", "build", "is_sound", "play"]

DONE: Counter[str] = Counter()  # what the tools have done outside, by what was asked for


@perdure.tool(effect="external_write")
def pay(amount: int) -> str:
    """Pay."""
    DONE[f"pay {amount}"] += 1
    return f"paid {amount}"


@perdure.tool(effect="external_write", key="order-{item}")
def order(item: str) -> str:
    """Order."""
    DONE[f"order {item}"] += 1
    return f"ordered {item}"


@perdure.tool(effect="external_write", key="ship-{item}", key_scope="store")
def ship(item: str) -> str:
    """Ship."""
    DONE[f"ship {item}"] += 1
    return f"shipped {item}"


@perdure.tool(effect="local_write")
def note(text: str) -> str:
    """Note."""
    DONE[f"note {text}"] += 1
    return f"noted {text}"


@perdure.tool(effect="financial", ask=True)
def wire(amount: int) -> str:
    """Wire."""
    DONE[f"wire {amount}"] += 1
    return f"wired {amount}"


@perdure.tool(effect="external_write")
def post(letter: str) -> str:
    """Post, and fail afterwards."""
    DONE[f"post {letter}"] += 1
    raise ConnectionError("no answer")


TOOLS = [pay, order, ship, note, wire, post]


class Answer(msgspec.Struct, frozen=True):
    """The outcome of one action of the user."""

    said: str | None  # None: it was refused
    error: str = ""
    is_ours: bool = True  # whether the error is one that the library documents


class Played(msgspec.Struct, frozen=True):
    """Everything that the user did, by its name, and what happened outside in that time."""

    answers: dict[str, Answer]
    effects: dict[str, dict[str, int]]  # by what was done, for those steps that had any


def agent(*steps: object) -> Agent:
    """An agent that says what is written here."""
    return Agent("clerk", backend=Script(*steps), tools=TOOLS)  # pyright: ignore[reportArgumentType]


def build(path: Path | str, halfway: Callable[[], None]) -> None:
    """Make the store; `halfway` is called when about half of it is there, and nothing is open."""
    with closing(perdure.open(path)) as store, _sorting_in():
        thread = store.thread("t", agent=agent(use("pay", amount=3), say("Paid.")), owner="ann")
        thread.run("Pay 3", id="m-1")
        thread.put("/a.json", 1, op_id="put-1")
        thread.call(pay, {"amount": 5}, id="hand-1")
        thread.call(order, {"item": "milk"}, id="hand-2")
        _run(store, "Note it", "m-2", use("note", text="x"), say("Noted."))
        _run(store, "Wire it", "m-3", use("wire", amount=7), say("Wired."))
        with suppress(PerdureError):
            thread.call(post, {"letter": "a"}, id="hand-3")
        store.close()
    halfway()
    with closing(perdure.open(path)) as store:
        ticket = next(iter(store.approvals())).ticket
        thread = store.thread("t", agent=agent(use("wire", amount=7), say("Wired.")))
        thread.decide(ticket.id, "approve", by="ann")
        thread.resume()
        _run(store, "Pay 4", "m-4", use("pay", amount=4), say("Paid."))
        store.thread("t").undo()
        fork = store.thread("t", agent=agent(say("Fine."))).fork("other")
        fork.put("/b.json", 2)
        _run(store, "Wire again", "m-5", use("wire", amount=8), say("Wired."), id="u")
        store.thread("u").call(ship, {"item": "eggs"}, id="hand-4")
        store.thread("t").call(pay, {"amount": 6}, id="hand-5")
        store.thread("t").call(note, {"text": "last"}, id="hand-6")
    DONE.clear()


@contextmanager
def _sorting_in() -> Generator[None]:
    """Let the engine sort the keys of what is written now into its index, as it does after thousands of them."""
    before, index._BATCH_LAST = index._BATCH_LAST, 0
    try:
        yield
    finally:
        index._BATCH_LAST = before


def _run(store: Store, said: str, message: str, *steps: object, id: str = "t") -> None:
    store.thread(id, agent=agent(*steps)).run(said, id=message)


def is_sound(path: Path) -> bool:
    """Whether `verify` finds nothing wrong; a store that it cannot open is not sound."""
    try:
        with closing(open_sqlite(path, read_only=True, create=False, durability="power_loss")) as engine:
            return verify.verify(engine).ok
    except PerdureError:
        return False


def play(path: Path) -> Played:
    """Do what a user does next, each thing for itself; one that is refused does not keep the next from being done."""
    answers: dict[str, Answer] = {}
    effects: dict[str, dict[str, int]] = {}
    try:
        store = perdure.open(path, create=False)
    except PerdureError as error:
        return Played(dict.fromkeys(ACTS, _refused(error)), {})
    with closing(store):
        for name, act in ACTS.items():
            DONE.clear()
            answers[name] = _answer(store, act)
            if DONE:
                effects[name] = dict(DONE)
    return Played(answers, effects)


def _answer(store: Store, act: Callable[[Store], object]) -> Answer:
    try:
        return Answer(repr(act(store)))
    except PerdureError as error:
        return _refused(error)
    except Exception as error:  # what an edit must not lead to is what is looked for here
        return Answer(None, f"{type(error).__name__}: {error}", is_ours=False)


def _refused(error: PerdureError) -> Answer:
    return Answer(None, f"{type(error).__name__}: {error}")


def _looked(store: Store, id: str) -> object:
    thread = store.thread(id)
    said = [entry.message.text for entry in thread.transcript()]
    state = {path: thread.get(path) for path in thread.paths()}
    calls = sorted((call.tool, call.state, call.key) for call in thread.calls())
    runs = [(run.id, run.state) for run in thread.runs()]
    return (
        said,
        state,
        calls,
        runs,
        len(thread.approvals()),
        sorted(str(hold.head) for hold in thread.timelines()),
    )


def _looked_back(store: Store, id: str) -> object:
    """Everything that can be asked about the past of a thread, its calls and its artifacts."""
    thread = store.thread(id)
    return (
        [(entry.digest, entry.turn, entry.reason, entry.run) for entry in thread.log()],
        thread.turns(),
        thread.at("turn:1").digest,
        thread.diff(None),
        [thread.blame(path) for path in thread.paths()],
        [thread.trace(call.id) for call in thread.calls()],
        [
            (listed, b"".join(thread.artifacts.get(f"artifact://sha256/{listed.digest}")))
            for listed in thread.artifacts.ls(calls=True)
        ],
        thread.checkpoint(),
        thread.switches(),
        [str(event) for event in thread.follow()],
    )


def _planned(store: Store) -> object:
    """What the next step would be shown, and what the last one was shown."""
    thread = store.thread("t", agent=agent(say("Ok.")))
    return thread.plan().context, thread.shown()


def _listed(store: Store) -> object:
    """What the store lists."""
    return (
        sorted(thread.id for thread in store.threads(owner="ann")),
        sorted(store.agents()),
        sorted(store.owners()),
        store.agent("clerk").paths(),
    )


def _by_hand(name: str, tool: object, id: str, **given: object) -> Callable[[Store], object]:
    def act(store: Store) -> object:
        called = store.thread(name).call(tool, given, id=id)  # pyright: ignore[reportArgumentType]
        return called.state, called.text

    return act


def _again(said: str, message: str, id: str = "t") -> Callable[[Store], object]:
    def act(store: Store) -> object:
        # A script that would do everything again, if it were asked.
        steps = (
            use("pay", amount=3),
            use("pay", amount=4),
            use("wire", amount=7),
            use("note", text="x"),
            say("Ok."),
        )
        done = store.thread(id, agent=agent(*steps)).run(said, id=message)
        return done.status, done.text

    return act


def _put(store: Store) -> object:
    thread = store.thread("t")
    thread.put("/a.json", 1, op_id="put-1")
    return thread.get("/a.json"), len(list(thread.log()))


def _waiting(store: Store) -> object:
    return sorted((each.thread, each.ticket.action) for each in store.approvals())


def _gone_on(thread: Thread) -> object:
    thread.put("/later.json", "x")
    return thread.get("/later.json")


ACTS: dict[str, Callable[[Store], object]] = {
    "threads": lambda store: sorted(thread.id for thread in store.threads()),
    "look t": lambda store: _looked(store, "t"),
    "look u": lambda store: _looked(store, "u"),
    "look back at t": lambda store: _looked_back(store, "t"),
    "look back at u": lambda store: _looked_back(store, "u"),
    "plan": _planned,
    "lists": _listed,
    "fork": lambda store: store.thread("t", timeline="other").get("/b.json"),
    "waiting": _waiting,
    "put again": _put,
    "run m-1": _again("Pay 3", "m-1"),
    "run m-2": _again("Note it", "m-2"),
    "run m-3": _again("Wire it", "m-3"),
    "run m-4": _again("Pay 4", "m-4"),
    "run m-5": _again("Wire again", "m-5", "u"),
    "hand-1": _by_hand("t", pay, "hand-1", amount=5),
    "hand-2": _by_hand("t", order, "hand-2", item="milk"),
    "hand-3": _by_hand("t", post, "hand-3", letter="a"),
    "hand-4": _by_hand("u", ship, "hand-4", item="eggs"),
    "hand-5": _by_hand("t", pay, "hand-5", amount=6),
    "hand-6": _by_hand("t", note, "hand-6", text="last"),
    "unknown, as new": _by_hand("t", post, "new-3", letter="a"),
    "same key, as new": _by_hand("t", order, "new-2", item="milk"),
    "store's key, as new": _by_hand("t", ship, "new-4", item="eggs"),
    "undone, as new": _by_hand("t", pay, "new-5", amount=4),
    "resume": lambda store: [done.status for done in store.resume(agent(use("wire", amount=8), say("Ok.")))],
    "go on": lambda store: _gone_on(store.thread("t")),
    "look again": lambda store: (store.thread("t").get("/a.json"), store.thread("t").get("/later.json")),
}
