"""An item is corrected: what the caller does not give stays, by its id, by `edit`, by a tool and on the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import perdure
from perdure import Agent, Call, Store, Thread, aio
from perdure.errors import Invalid, NotFound, OpReused
from perdure.memory import write
from perdure.model.memory import Remembered
from perdure.store.memory import Memory
from perdure.testing import Script, say, use
from tests.coded import raises
from tests.memory.remembering import remembering

DAY = 86_400_000_000


@pytest.fixture
def clock() -> list[int]:
    """The time, in µs since 1970, which tests move."""
    return [1_700_000_000_000_000]


@pytest.fixture
def store(store_url: str, clock: list[int]) -> Iterator[Store]:
    """A store with that clock."""
    with perdure.open(store_url, clock=lambda: clock[0]) as opened:
        yield opened


@pytest.fixture
def ann(store: Store) -> Memory:
    """The memory of an owner with one item that is not like a new one: its kind, its scope, and an end."""
    memory = store.memory("ann")
    memory.add("sits at the aisle", id="seat", kind="preference", scope="travel", expires=timedelta(days=1))
    return memory


def facts(item: Remembered) -> tuple[object, ...]:
    """What a caller can give."""
    return item.text, item.kind, item.scope, item.trust, item.expires_at


def test_adding_under_an_id_keeps_what_is_not_given(ann: Memory, clock: list[int]) -> None:
    """Kind, scope and end are those of the item, the trust is that of the new words; an id that is new gets the defaults."""
    before = ann.get("seat")
    clock[0] += DAY // 2

    now = ann.add("sits at the window", id="seat", trust="model")
    new = ann.add("has a dog", id="pet")

    assert facts(now) == ("sits at the window", "preference", "travel", "model", before.expires_at)
    assert now.at == clock[0]
    assert facts(new) == ("has a dog", "semantic", "user", "user", None)


def test_what_is_given_under_an_id_replaces_it(ann: Memory, clock: list[int]) -> None:
    """Each alone; an end of None removes the end."""
    end = ann.get("seat").expires_at

    kind = ann.add("sits at the aisle", id="seat", kind="episodic")
    scope = ann.add("sits at the aisle", id="seat", scope="user")
    later = ann.add("sits at the aisle", id="seat", expires=timedelta(days=9))
    endless = ann.add("sits at the aisle", id="seat", expires=None)

    assert facts(kind)[1:] == ("episodic", "travel", "user", end)
    assert facts(scope)[1:] == ("episodic", "user", "user", end)
    assert later.expires_at == clock[0] + 9 * DAY
    assert facts(endless)[1:] == ("episodic", "user", "user", None)


@pytest.mark.parametrize("gone", ["forgotten", "expired", "erased"])
def test_an_id_whose_item_is_gone_begins_anew(ann: Memory, clock: list[int], gone: str) -> None:
    """Nothing of an item that is not there is taken over, its end least of all."""
    if gone == "forgotten":
        ann.forget("seat")
    elif gone == "erased":
        ann.erase("seat")
    else:
        clock[0] += 2 * DAY

    assert facts(ann.add("sits anywhere", id="seat")) == ("sits anywhere", "semantic", "user", "user", None)


def test_an_edit_keeps_what_is_not_given(ann: Memory) -> None:
    """The words are a user's from then on, unless another source is named."""
    end = ann.get("seat").expires_at

    words = ann.edit("seat", "sits at the window", author="bob")
    source = ann.edit("seat", "sits in the middle", trust="model")
    scope = ann.edit("seat", scope="trains")

    assert facts(words) == ("sits at the window", "preference", "travel", "user", end)
    assert facts(source) == ("sits in the middle", "preference", "travel", "model", end)
    assert facts(scope) == ("sits in the middle", "preference", "trains", "model", end)
    assert [(each.reason, each.author) for each in ann.log()][-2:] == [
        ("memory.edit", "bob"),
        ("memory.add", None),
    ]


def test_an_edit_of_the_end_alone_moves_or_removes_it(ann: Memory, clock: list[int]) -> None:
    """The words and who said them stay."""
    ann.edit("seat", trust="tool")

    later = ann.edit("seat", expires=timedelta(days=9))
    endless = ann.edit("seat", expires=None)

    assert facts(later) == ("sits at the aisle", "preference", "travel", "tool", clock[0] + 9 * DAY)
    assert facts(endless) == ("sits at the aisle", "preference", "travel", "tool", None)
    with raises(Invalid, "expiry_in_past"):
        ann.edit("seat", expires=timedelta(days=-1))


@pytest.mark.parametrize("gone", ["never", "forgotten", "expired", "erased"])
def test_an_item_that_is_not_there_is_not_edited(ann: Memory, clock: list[int], gone: str) -> None:
    """It was mistyped, forgotten or erased, or it ended: nothing is written, and none is made."""
    if gone == "forgotten":
        ann.forget("seat")
    elif gone == "erased":
        ann.erase("seat")
    elif gone == "expired":
        clock[0] += 2 * DAY
    head = ann.head

    with pytest.raises(NotFound) as refused:
        ann.edit("seet" if gone == "never" else "seat", "sits at the window")

    assert refused.value.facts["owner"] == "ann"
    assert ann.head == head


def test_an_edit_that_changes_nothing_writes_nothing(ann: Memory) -> None:
    """The item is returned as it is; control: the same words of another source are a change."""
    there, head = ann.get("seat"), ann.head

    same = ann.edit("seat", "sits at the aisle", kind="preference")
    nothing = ann.edit("seat")

    assert (same, nothing, ann.head) == (there, there, head)
    assert ann.edit("seat", "sits at the aisle", trust="model").trust == "model"


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"text": " "}, "item_empty"),
        ({"text": 5}, "item_not_text"),
        ({"kind": "vague"}, "choice_invalid"),
        ({"scope": "My Project"}, "scope_invalid"),
        ({"trust": "god"}, "choice_invalid"),
        ({"id": "../up"}, "item_id_invalid"),
        ({"text": "half \ud83d"}, "lone_surrogate"),
    ],
)
def test_what_cannot_be_remembered_is_refused_in_an_edit(
    ann: Memory, wrong: dict[str, Any], code: str
) -> None:
    """As in an addition: the item stays as it is."""
    given: dict[str, Any] = {"id": "seat", **wrong}
    head = ann.head

    with raises(Invalid, code):
        ann.edit(**given)

    assert ann.head == head


def test_an_edit_can_be_repeated_safely(ann: Memory) -> None:
    """Under its op_id it is made once, whatever came after it, also a forgetting; other words are an error."""
    first = ann.edit("seat", "sits at the window", op_id="req-1")
    again = ann.edit("seat", "sits at the window", op_id="req-1")
    ann.edit("seat", "sits at the aisle", kind="semantic")
    later = ann.edit("seat", "sits at the window", op_id="req-1")
    ann.forget("seat")
    last = ann.edit("seat", "sits at the window", op_id="req-1")

    assert first == again == later == last
    with pytest.raises(OpReused):
        ann.edit("seat", "sits anywhere", op_id="req-1")


def test_an_addition_under_an_id_can_be_repeated_safely(ann: Memory) -> None:
    """Also where the item has another kind and scope by then."""
    first = ann.add("sits at the window", id="seat", op_id="req-1")
    ann.edit("seat", kind="episodic", scope="user", expires=None)

    assert ann.add("sits at the window", id="seat", op_id="req-1") == first
    assert ann.get("seat").kind == "episodic"


def test_another_writers_change_between_the_read_and_the_write_stays(
    ann: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept is what the item has when the edit is written, not when it was called."""
    written, others = write.write, [True]

    def other_first(*given: Any, **named: Any) -> Any:
        if others and others.pop():
            ann.edit("seat", scope="trains", expires=None)
        return written(*given, **named)

    monkeypatch.setattr(write, "write", other_first)

    now = ann.edit("seat", "sits at the window")

    assert facts(now) == ("sits at the window", "preference", "trains", "user", None)


def test_an_erasure_between_the_read_and_the_write_is_not_taken_back(
    ann: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit of the end carries the words along, so it is refused once they are erased."""
    written, erasing = write.write, [True]

    def erased_first(*given: Any, **named: Any) -> Any:
        if erasing and erasing.pop():
            ann.erase("seat")
        return written(*given, **named)

    monkeypatch.setattr(write, "write", erased_first)

    with raises(NotFound, "memory_item_not_found", item="seat"):
        ann.edit("seat", expires=None)

    assert list(ann.items()) == []


def test_an_edited_item_no_longer_depends_on_its_thread(store: Store, ann: Memory) -> None:
    """Where the words stay, it still names the thread that wrote them; control: unedited it goes with the turn."""
    for name in ("words", "end", "none"):
        thread = remembering(store, f"t-{name}", f"likes {name}", name=name)
        if name == "words":
            ann.edit(name, "likes fjords")
        elif name == "end":
            ann.edit(name, expires=timedelta(days=9))
        thread.undo()

    words, end = ann.get("words"), ann.get("end")
    assert words.source is None
    assert end.source is not None
    assert (end.source.thread, end.trust) == ("t-end", "model")
    with pytest.raises(NotFound):
        ann.get("none")


def called(store: Store, *wanted: tuple[str, dict[str, Any]]) -> tuple[Thread, list[str]]:
    """A thread whose one call does these things with memory, and the codes of the errors that it met."""
    met: list[str] = []

    @perdure.tool(effect="local_write")
    def change(call: Call) -> str:
        for name, given in wanted:
            try:
                getattr(call.memory, name)(**given)
            except (Invalid, NotFound) as error:
                met.append(error.code)
        return "changed"

    script = Script(use("change"), say("Done."))
    thread = store.thread("t", agent=Agent("a", backend=script, tools=[change]), owner="ann")
    thread.run("Change it.")
    return thread, met


@pytest.mark.parametrize("how", ["add", "edit"])
def test_a_tool_that_corrects_an_item_keeps_what_it_does_not_give(
    store: Store, ann: Memory, how: str
) -> None:
    """The words are the tool's; an undo of the turn brings the former item back."""
    before = ann.get("seat")

    thread, met = called(store, (how, {"id": "seat", "text": "sits at the window"}))
    now = ann.get("seat")
    thread.undo()

    assert met == []
    assert facts(now) == ("sits at the window", "preference", "travel", "tool", before.expires_at)
    assert ann.get("seat") == before


def test_a_tool_edits_what_it_has_just_added(store: Store, ann: Memory) -> None:
    """Before anything is written; an end of its own is given once and stays."""
    added = {"id": "pet", "text": "has a dog", "kind": "episodic", "expires": timedelta(days=9)}
    _, met = called(
        store,
        ("add", added),
        ("edit", {"id": "pet", "text": "has two dogs", "trust": "model"}),
        ("edit", {"id": "pet", "scope": "home"}),
        ("add", {"id": "pet", "text": "has three dogs", "trust": "user"}),
    )

    assert met == []
    item = ann.get("pet")
    assert facts(item)[:4] == ("has three dogs", "episodic", "home", "user")
    assert item.expires_at is not None


def test_a_tool_is_refused_an_edit_of_nothing(store: Store, ann: Memory) -> None:
    """An item that there is not, one that the call has forgotten, and the trust of the system; nothing is written."""
    _, met = called(
        store,
        ("edit", {"id": "seet", "text": "sits at the window"}),
        ("edit", {"id": "seat", "trust": "system"}),
        ("forget", {"id": "seat"}),
        ("edit", {"id": "seat", "text": "sits at the window"}),
    )

    assert met == ["memory_item_not_found", "trust_not_allowed", "memory_item_not_found"]
    assert list(ann.items()) == []


def test_the_awaitable_face_edits(store_url: str) -> None:
    """The same method on an event loop."""

    async def story() -> tuple[str, str]:
        async with aio.open(store_url) as store:
            memory = await store.memory("ann")
            await memory.add("likes tea", id="drink", kind="preference")
            edited = await memory.edit("drink", "likes coffee")
            return edited.text, edited.kind

    assert asyncio.run(story()) == ("likes coffee", "preference")
