"""What is added by hand: read back, replaced, forgotten, taken back, and referred to."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

import perdure
from perdure import Agent, Call, Store, Thread, aio
from perdure.errors import Invalid, NotFound, OpReused, Unavailable
from perdure.model.memory import TEXT_BYTES_MAX, Trust
from perdure.testing import Script, say, use
from tests.coded import raises
from tests.memory.remembering import by_letters


def test_an_item_is_read_as_it_was_added(store: Store) -> None:
    """Words, kind, scope, who said it and when: all of it comes back."""
    memory = store.memory("ann")

    added = memory.add("prefers aisle seats", kind="preference", scope="project", id="seat", trust="system")

    found = memory.get("seat")
    assert found == added
    assert (found.text, found.kind, found.scope, found.trust) == (
        "prefers aisle seats",
        "preference",
        "project",
        "system",
    )
    assert found.source is None
    assert found.owner == "ann"


def test_reading_a_memory_begins_nothing(store: Store) -> None:
    """Reading alone writes no space."""
    memory = store.memory("nobody")

    assert list(memory.items()) == []
    assert list(memory.search("anything")) == []
    assert memory.head.commit is None
    with raises(NotFound, "memory_item_not_found", item="seat", owner="nobody"):
        memory.get("seat")

    assert "memory:nobody" not in store._resources.engine.spaces(limit=100)


def test_an_item_under_the_same_id_takes_the_place_of_the_first(store: Store) -> None:
    """There is one item of an id; its past is in the history."""
    memory = store.memory("ann")
    memory.add("aisle", id="seat")

    memory.add("window", id="seat")

    assert [item.text for item in memory.items()] == ["window"]
    assert [entry.reason for entry in memory.log()] == ["memory.add", "memory.add"]
    assert [item.text for item in memory.at("HEAD~1")] == ["aisle"]
    assert (memory.get("seat", at="HEAD~1").text, memory.get("seat").text) == ("aisle", "window")


def test_an_item_is_read_at_any_moment_of_the_history(store: Store) -> None:
    """Also after it was forgotten; a moment before it was added, or after it was forgotten, has none."""
    memory = store.memory("ann")
    memory.add("aisle", id="seat")
    memory.forget("seat")
    forgot, added = memory.log()

    assert memory.get("seat", at=added).text == "aisle"
    for moment in (forgot, None):
        with raises(NotFound, "memory_item_not_found", item="seat"):
            memory.get("seat", at=moment)


def test_undo_and_redo_work_on_what_was_done_by_hand(store: Store) -> None:
    """Adding, replacing and forgetting are steps of one history."""
    memory = store.memory("ann")
    memory.add("aisle", id="seat")
    memory.add("window", id="seat")
    memory.forget("seat")

    seen: list[list[str]] = []
    for _ in range(3):
        memory.undo()
        seen.append([item.text for item in memory.items()])
    memory.redo()
    memory.redo()

    assert seen == [["window"], ["aisle"], []]
    assert [item.text for item in memory.items()] == ["window"]
    assert [found.text for found in memory.search("window aisle")] == ["window"]


def test_what_is_forgotten_is_not_found_and_cannot_be_forgotten_again(store: Store) -> None:
    """Forgetting what is not there is an error, and writes nothing."""
    memory = store.memory("ann")
    memory.add("aisle", id="seat")
    memory.forget("seat")
    head = memory.head

    assert list(memory.search("aisle")) == []
    with raises(NotFound, "memory_item_not_found", item="seat", owner="ann"):
        memory.forget("seat")

    assert memory.head == head


def test_a_reference_names_one_version_for_ever(store: Store) -> None:
    """Replaced, undone, forgotten: the reference still leads to the words it was made for."""
    memory = store.memory("a/n@n ☃")
    first = memory.add("aisle", id="seat", scope="project")
    second = memory.add("window", id="seat", scope="project")
    memory.forget("seat")

    assert first.reference.startswith("mem://project/a%2Fn%40n%20%E2%98%83/seat@")
    assert [memory.resolve(each.reference).text for each in (first, second)] == ["aisle", "window"]
    assert memory.resolve(first.reference).digest == first.digest
    with raises(NotFound, "memory_item_not_found"):
        memory.resolve(first.reference.partition("@")[0])


def test_a_reference_without_a_commit_is_what_stands_now(store: Store) -> None:
    """It follows the item, and its scope has to be the item's."""
    memory = store.memory("ann")
    memory.add("aisle", id="seat")
    memory.add("window", id="seat")

    assert memory.resolve("mem://user/ann/seat").text == "window"
    with pytest.raises(NotFound):
        memory.resolve("mem://project/ann/seat")


def test_a_reference_to_another_owner_leads_nowhere(store: Store) -> None:
    """Whatever is guessed, nothing of another's is looked up; the control is the owner's own memory."""
    theirs = store.memory("bob").add("secret", id="seat")

    with pytest.raises(NotFound):
        store.memory("ann").resolve(theirs.reference)

    assert store.memory("bob").resolve(theirs.reference).text == "secret"


def test_what_has_expired_is_not_retrieved() -> None:
    """Time passes: the item is there until its time, and not after."""
    now = [1_000_000_000_000_000]
    with perdure.open("memory:", clock=lambda: now[0]) as store:
        memory = store.memory("ann")
        memory.add("code 1234", id="code", expires=timedelta(minutes=5))
        memory.add("code word", id="word")
        before = [found.id for found in memory.search("code")]

        now[0] += 5 * 60 * 1_000_000

        assert sorted(before) == ["code", "word"]
        assert [found.id for found in memory.search("code")] == ["word"]
        assert [item.id for item in memory.items()] == ["word"]
        with pytest.raises(NotFound):
            memory.get("code")


def test_an_item_that_expired_is_said_to_have_expired() -> None:
    """Reading, editing, forgetting and keeping say when, and it is listed; control: one that was forgotten never ended."""
    now = [1_000_000_000_000_000]
    with perdure.open("memory:", clock=lambda: now[0]) as store:
        memory = store.memory("ann")
        code = memory.add("code 1234", id="code", scope="door", expires=timedelta(minutes=5))
        memory.add("code 9999", id="old")
        memory.forget("old")
        before = list(memory.items(expired=True))
        now[0] += 5 * 60 * 1_000_000

        for act in (memory.get, memory.forget, memory.keep, partial(memory.edit, text="x")):
            with raises(NotFound, "memory_item_expired", item="code", owner="ann", expired_at=now[0]) as told:
                act("code")
            assert "expired at 2001-09-09 01:51:40 UTC" in told.value.message
        with raises(NotFound, "memory_item_not_found"):
            memory.get("old")

        assert before == []
        assert list(memory.items(expired=True)) == [code]
        assert list(memory.items(expired=True, scope="user")) == []
        assert memory.restore("code", expires=timedelta(days=1)).text == "code 1234"
        assert list(memory.items(expired=True)) == []


def test_a_call_is_told_that_an_item_expired() -> None:
    """One that it has forgotten itself is not there, whether it would have expired or not."""
    now = [1_000_000_000_000_000]
    met: list[str] = []

    @perdure.tool(effect="local_write")
    def look(call: Call) -> str:
        for act, id in ((call.memory.get, "code"), (call.memory.forget, "word"), (call.memory.get, "word")):
            try:
                act(id)
            except NotFound as error:
                met.append(error.code)
        return "looked"

    with perdure.open("memory:", clock=lambda: now[0]) as store:
        memory = store.memory("ann")
        memory.add("code 1234", id="code", expires=timedelta(minutes=5))
        memory.add("code word", id="word")
        now[0] += 5 * 60 * 1_000_000
        script = Script(use("look"), say("Done."))
        store.thread("t", agent=Agent("a", backend=script, tools=[look]), owner="ann").run("Look.")

    assert met == ["memory_item_expired", "memory_item_not_found"]


def test_a_call_lists_all_items_and_searches_by_similarity() -> None:
    """The ids are those that it can edit and forget, by kind and scope too; what it wrote itself is not there yet."""
    met: list[list[str]] = []

    @perdure.tool(effect="local_write")
    def look(call: Call) -> str:
        call.memory.add("knows the tool", id="own")
        met.append([item.id for item in call.memory.items()])
        met.append([item.id for item in call.memory.items(kind="preference")])
        met.append([item.text for item in call.memory.items(scope="project")])
        met.append([item.id for item in call.memory.search("abc")])
        met.append([item.id for item in call.memory.search("abc", similarity_min=0.9)])
        return "looked"

    with perdure.open("memory:", embed=by_letters) as store:
        memory = store.memory("ann")
        memory.add("abc", id="near", kind="preference")
        memory.add("abc xyz xyz", id="far", scope="project")
        script = Script(use("look"), say("Done."))
        store.thread("t", agent=Agent("a", backend=script, tools=[look]), owner="ann").run("Look.")
        after = [item.id for item in memory.items()]

    assert met == [["far", "near"], ["near"], ["abc xyz xyz"], ["near", "far"], ["near"]]
    assert after == ["far", "near", "own"]


def test_adding_can_be_repeated_safely(store: Store) -> None:
    """The same op_id writes once; with other words it is an error."""
    memory = store.memory("ann")
    first = memory.add("aisle", id="seat", op_id="req-1")

    again = memory.add("aisle", id="seat", op_id="req-1")

    assert again.reference == first.reference
    assert len(memory.log()) == 1
    with pytest.raises(OpReused):
        memory.add("window", id="seat", op_id="req-1")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"text": ""}, "item_empty"),
        ({"text": "  \n"}, "item_empty"),
        ({"text": 5}, "item_not_text"),
        ({"text": "x" * TEXT_BYTES_MAX + "x"}, "item_too_large"),
        ({"text": "x", "kind": "vague"}, "choice_invalid"),
        ({"text": "x", "trust": "god"}, "choice_invalid"),
        ({"text": "x", "scope": "My Project"}, "scope_invalid"),
        ({"text": "x", "scope": "a/b"}, "scope_invalid"),
        ({"text": "x", "id": "../up"}, "item_id_invalid"),
        ({"text": "x", "id": ""}, "item_id_invalid"),
        ({"text": "x", "expires": timedelta(seconds=-1)}, "expiry_in_past"),
        ({"text": "x", "expires": datetime(2000, 1, 1, tzinfo=UTC)}, "expiry_in_past"),
        ({"text": "x", "expires": 5}, "expiry_invalid"),
        ({"text": "x", "expires": timedelta(days=999_999_999)}, "expiry_invalid"),
        ({"text": "x", "expires": datetime(2256, 1, 1, tzinfo=UTC)}, "expiry_invalid"),
    ],
)
def test_what_cannot_be_remembered_is_refused(store: Store, options: dict[str, Any], code: str) -> None:
    """The error says what is wrong, and nothing is written."""
    memory = store.memory("ann")

    with raises(Invalid, code):
        memory.add(**options)

    assert memory.head.commit is None


@pytest.mark.parametrize("letter", ["x", "é", '"', "\n", "\x01"])
def test_an_item_has_as_many_bytes_as_the_limit_says(store: Store, letter: str) -> None:
    """Those of its text in UTF-8, not of JSON, where a sign may take more; one byte more is refused."""
    memory = store.memory("ann")
    text = "x" + letter * ((TEXT_BYTES_MAX - 2) // len(letter.encode()))
    text += "x" * (TEXT_BYTES_MAX - len(text.encode()))

    assert memory.add(text, id="long").text == text
    with raises(Invalid, "item_too_large", limit=TEXT_BYTES_MAX):
        memory.add(text + "x", id="long")

    assert memory.get("long").text == text


@pytest.mark.parametrize("id", [None, "mine"])
@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"text": " "}, "item_empty"),
        ({"text": "x" * TEXT_BYTES_MAX + "x"}, "item_too_large"),
        ({"text": "x", "kind": "vague"}, "choice_invalid"),
        ({"text": "x", "scope": "a/b"}, "scope_invalid"),
    ],
)
def test_a_call_is_refused_the_same(store: Store, options: dict[str, Any], code: str, id: str | None) -> None:
    """With an id of its own and without one; nothing is remembered."""
    refused: list[str] = []

    @perdure.tool(effect="local_write")
    def note(call: Call) -> str:
        try:
            return call.memory.add(**options, id=id)
        except Invalid as error:
            refused.append(error.code)
            return "refused"

    script = Script(use("note"), say("Noted."))
    store.thread("t", agent=Agent("a", backend=script, tools=[note]), owner="ann").run("Note it.")

    assert refused == [code]
    assert store.memory("ann").head.commit is None


def test_a_repeated_write_is_one_item_also_without_an_id(store: Store) -> None:
    """Its op_id leads to the item, which ends, so that no other one says the same; control: another op_id adds one."""
    memory = store.memory("ann")
    first = memory.add("aisle", expires=timedelta(days=1), op_id="req-1")

    again = memory.add("aisle", expires=timedelta(days=1), op_id="req-1")
    other = memory.add("aisle", expires=timedelta(days=1), op_id="req-2")

    assert again.reference == first.reference
    assert [item.id for item in memory.items()] == [first.id, other.id]
    for op_id in ("req-1", "req-2"):
        with pytest.raises(OpReused):
            memory.add("window", op_id=op_id)


def test_an_op_id_of_another_write_adds_nothing(store: Store) -> None:
    """It named a forgetting, and an undo, before."""
    memory = store.memory("ann")
    item = memory.add("aisle")
    memory.forget(item.id, op_id="forgotten")
    memory.undo(op_id="undone")

    for op_id in ("forgotten", "undone"):
        with pytest.raises(OpReused):
            memory.add("window", op_id=op_id)

    assert [each.text for each in memory.items()] == ["aisle"]


@pytest.mark.parametrize("owner", ["", "a\nb", "x" * 201, "a\u202eb"])
def test_an_owner_has_a_name_that_can_be_seen(store: Store, owner: str) -> None:
    """Owners follow the rule of ids."""
    with pytest.raises(Invalid) as refused:
        store.memory(owner)

    assert refused.value.facts["what"] == "owner"


@pytest.mark.parametrize("trust", ["user", "system"])
@pytest.mark.parametrize("text", ["half \ud83d of it", "\udc80", "\ud83d\ude42"])
def test_a_lone_surrogate_that_a_program_writes_is_refused(store: Store, text: str, trust: Trust) -> None:
    """As in any other value of ours: nothing is written, and what was there stays."""
    memory = store.memory("ann")
    memory.add("before", id="half")
    head = memory.head

    with raises(Invalid, "lone_surrogate"):
        memory.add(text, id="half", trust=trust)

    assert memory.head == head
    assert memory.get("half").text == "before"


@pytest.mark.parametrize("trust", ["model", "tool", "import"])
def test_in_words_of_others_the_replacement_character_stands_for_it(store: Store, trust: Trust) -> None:
    """What a model or a tool said may hold half a character; the rest of it is remembered."""
    memory = store.memory("ann")

    memory.add("half \ud83d of it", id="half", trust=trust)

    assert memory.get("half").text == "half \ufffd of it"


def test_a_call_is_not_lost_for_half_a_character_that_it_remembers(store: Store) -> None:
    """A tool passes on what a model wrote: its effect is done, so its words are taken."""

    @perdure.tool(effect="external_write")
    def note(call: Call) -> str:
        """Note something."""
        call.memory.add("half \ud83d of it", id="half")
        return "noted"

    script = Script(use("note"), say("Noted."))
    result = store.thread("t", agent=Agent("a", backend=script, tools=[note]), owner="ann").run("Note it.")

    assert result.status == "succeeded"
    assert store.memory("ann").get("half").text == "half \ufffd of it"


def test_a_store_that_is_read_only_can_be_searched_and_not_written(store: Store, store_url: str) -> None:
    """Reading needs no index of its own on disk."""
    store.memory("ann").add("aisle seats", id="seat")
    with perdure.open(store_url, read_only=True) as reading:
        memory = reading.memory("ann")

        assert [found.id for found in memory.search("seats")] == ["seat"]
        with pytest.raises(Unavailable):
            memory.add("window")


def test_everything_that_is_remembered_verifies(store: Store) -> None:
    """A memory is a history like any other, and `verify` goes over it."""
    memory = store.memory("ann")
    for number in range(30):
        memory.add(f"fact {number}", id=f"f{number % 7}")
    memory.forget("f3")
    memory.undo(2)

    report = store.verify()

    assert report.ok, report.faults


def test_the_awaitable_face_does_the_same(store_url: str) -> None:
    """Added, found, listed, forgotten and taken back on an event loop."""

    async def story() -> list[list[str]]:
        async with aio.open(store_url) as store:
            memory = await store.memory("ann")
            await memory.add("aisle seats", id="seat")
            found = [each.id for each in await memory.search("seats")]
            await memory.forget("seat")
            gone = [item.id async for item in memory.items()]
            await memory.undo()
            back = [item.id async for item in memory.ls()]
            return [found, gone, back, [owner async for owner in store.owners()]]

    assert asyncio.run(story()) == [["seat"], [], ["seat"], ["ann"]]


def test_the_same_again_is_the_same_item(store: Store) -> None:
    """Nothing is written; another kind or scope, an end of its own or an id make another item."""
    held = store.memory("ann")
    first = held.add("prefers aisle seats")
    version = held.head.version

    again = held.add("prefers aisle seats")

    assert (again.id, held.head.version) == (first.id, version)
    others = [
        held.add("prefers aisle seats", kind="preference"),
        held.add("prefers aisle seats", scope="travel"),
        held.add("prefers aisle seats", expires=timedelta(days=1)),
        held.add("prefers aisle seats", id="mine"),
        held.add("prefers aisle seats!"),
    ]
    assert len({first.id, *(each.id for each in others)}) == 6
    held.forget(first.id)
    held.forget("mine")
    assert held.add("prefers aisle seats").id not in (first.id, "mine"), "what was forgotten is new"


def test_the_same_from_two_threads_is_one_item_that_each_of_them_holds(store: Store) -> None:
    """An undo of one does not take it from the other; added by hand it depends on neither."""
    one = noting(store, "t1", "has a dog")
    two = noting(store, "t2", "has a dog")
    held = store.memory("ann")
    assert len(list(held.items())) == 1

    one.undo()
    still = [item.text for item in held.items()]
    two.undo()
    gone = list(held.items())
    two.redo()
    held.add("has a dog", trust="model")
    two.undo()

    assert (still, gone) == (["has a dog"], [])
    assert [item.text for item in held.items()] == ["has a dog"]


def noting(store: Store, thread: str, text: str) -> Thread:
    """A thread whose one run has remembered `text` twice, under no id."""

    @perdure.tool(effect="local_write")
    def note(call: Call) -> str:
        assert call.memory.add(text, trust="model") == call.memory.add(text, trust="model")
        return "noted"

    script = Script(use("note"), say("Noted."))
    opened = store.thread(thread, agent=Agent("planner", backend=script, tools=[note]), owner="ann")
    opened.run("Remember it")
    return opened
