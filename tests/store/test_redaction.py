"""Redaction: the words of one message, one call or one artifact go for good, and the thread goes on."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Generator
from pathlib import Path

import pytest

import perdure
from perdure import Agent, RetentionPolicy, Store, Thread, aio, tool
from perdure.engines import loops
from perdure.engines.contract import Engine
from perdure.errors import Busy, Conflict, Forgotten, Invalid, NotFound, PerdureError
from perdure.history import stored_objects
from perdure.integrations.importers import import_sessions
from perdure.model.context import Context
from perdure.model.digest import Digest
from perdure.model.event import MessageAppended
from perdure.model.message import Text
from perdure.model.redaction import REDACTED, WHY
from perdure.providers.registry import APIS
from perdure.store import git_export
from perdure.store.upkeep.redact import RedactionReport
from perdure.testing import Script, say, step, use
from perdure.testing.script import ScriptStep
from tests.coded import raises
from tests.engines.postgres.stores import new_store
from tests.integrations.exports import exports_faults
from tests.selection import engines
from tests.store.copies import engine_of, equal
from tests.store.git_export.looking import clean, show, tree

SECRET = "hunter2-of-the-customer"
NOTE = "[A person has redacted this message.]"


@tool(effect="external_write")
def send(to: str, text: str) -> str:
    """Send a letter."""
    return f"sent to {to}: {text}"


class Shown:
    """A model that remembers what it was shown."""

    def __init__(self) -> None:
        self.contexts: list[Context] = []

    def __call__(self, context: Context) -> ScriptStep:
        """Remember it, and say something."""
        self.contexts.append(context)
        return say("I see.")

    @property
    def last(self) -> str:
        """Everything that the last context says."""
        return repr(list(self.contexts[-1].messages))


@pytest.fixture
def shown() -> Shown:
    """What the model of the thread is shown after its first turn."""
    return Shown()


@pytest.fixture(params=engines("file", "memory:", "postgres"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Store]:
    """An empty store on each engine, which is sound at the end."""
    url = {"memory:": lambda: "memory:", "file": lambda: str(tmp_path / "store.db")}
    with perdure.open(url.get(request.param, lambda: new_store(request))()) as opened:
        yield opened
        report = opened.verify()
        assert report.ok, report.faults


@pytest.fixture
def thread(store: Store, shown: Shown) -> Thread:
    """A thread in which a user and a model have said the secret, and a tool was called with it."""
    script = Script(use("send", to="bob", text=f"It is {SECRET}"), say("Sent."), *([shown] * 9))
    found = store.thread("talk", agent=Agent("desk", backend=script, tools=[send]), owner="ann")
    found.run(f"My password is {SECRET}", id="first")
    return found


def first(thread: Thread) -> str:
    """The id of the message of the user."""
    return thread.transcript()[0].id


def redact(thread: Thread, id: str, **how: object) -> RedactionReport:
    """Redact something in the thread."""
    return thread.redact(id, why="a password", author="eve", **how)  # type: ignore[arg-type]


def holds(engine: Engine, words: str = SECRET) -> int:
    """How many objects, cells and entries of a store hold these words."""
    found = 0
    for space in loops.spaces(engine):
        for page in stored_objects.pages(engine, space):
            found += sum(words.encode() in fact.object.body for fact in page if fact.object is not None)
        cells = engine.stored_cells(space, limit=10_000)
        entries = loops.entries(engine, space)
        found += sum(words.encode() in (cell.value or b"") for cell in cells)
        found += sum(words.encode() in entry.body for entry in entries)
    return found


def all_of(thread: Thread) -> None:
    """Redact everything that has the secret."""
    redact(thread, first(thread))
    redact(thread, thread.calls()[0].id)


def test_the_transcript_says_who_redacted_a_message_when_and_why(thread: Thread) -> None:
    """The other messages are as they were."""
    before = thread.transcript()

    redact(thread, before[0].id)

    after = thread.transcript()
    redaction = after[0].redaction
    assert redaction is not None
    assert (after[0].text, redaction.by, redaction.why) == (NOTE, "eve", "a password")
    assert redaction.at >= after[0].at
    assert after[1:] == before[1:]


def test_the_words_are_in_no_object_cell_or_entry(thread: Thread, store: Store) -> None:
    """Of all that the engine can read; control: they were there."""
    assert holds(engine_of(store)) > 0

    all_of(thread)

    assert holds(engine_of(store)) == 0


def test_the_bytes_are_in_no_file_of_the_store(tmp_path: Path) -> None:
    """Neither in the file nor in its write-ahead log, also of an input that was queued; control: they were."""
    agent = Agent("desk", backend=Script(use("send", to="bob", text=SECRET), say("Sent.")), tools=[send])
    with perdure.open(tmp_path / "s.db") as store:
        thread = store.thread("talk", agent=agent)
        thread.start(f"My password is {SECRET}")
        store.work(agent, until_idle=True)
        before = b"".join(file.read_bytes() for file in tmp_path.glob("s.db*") if file.is_file())

        all_of(thread)

        after = b"".join(file.read_bytes() for file in tmp_path.glob("s.db*") if file.is_file())
    assert SECRET.encode() in before
    assert SECRET.encode() not in after


def test_every_moment_and_timeline_is_without_the_words(thread: Thread) -> None:
    """The past, a fork that was made before, and one that is made now."""
    then, fork = thread.head, thread.fork("before")
    redact(thread, first(thread))
    thread.run("Go on", id="second")

    for view in (thread.at(then), fork, thread.fork("after", at=then)):
        assert view.transcript()[0].text == NOTE


def test_models_are_shown_a_note_also_by_a_process_that_had_the_prompt(
    thread: Thread, shown: Shown, store: Store
) -> None:
    """The prompt in memory is of the commit before, and is built again."""
    thread.run("Go on", id="second")
    assert SECRET in shown.last

    all_of(thread)
    thread.run("Go on", id="third")

    assert SECRET not in shown.last
    assert NOTE in shown.last


def test_another_opening_that_had_the_prompt_shows_the_note(tmp_path: Path) -> None:
    """Its cache is of the same commit; only the lease says that something was redacted."""
    seen = Shown()
    agent = Agent("desk", backend=Script(*([seen] * 4)))
    with perdure.open(tmp_path / "s.db") as one, perdure.open(tmp_path / "s.db") as other:
        thread = one.thread("talk", agent=agent)
        thread.run(f"My password is {SECRET}")
        redact(other.thread("talk"), first(thread))

        thread.run("Go on")

    assert SECRET not in seen.last


@pytest.mark.parametrize("part", [None, "arguments", "result"])
def test_requests_with_a_redacted_call_keep_every_rule(thread: Thread, part: str | None) -> None:
    """In every format: calls and results stay pairs, under their ids; the rest of the conversation is there."""
    redact(thread, first(thread))
    redact(thread, thread.calls()[0].id, part=part)

    assert exports_faults(thread) == []
    sent = json.dumps([thread.export(api).body for api in APIS])
    assert (SECRET in sent) is (part is not None)
    assert sent.count("Sent.") == len(APIS)


@pytest.mark.parametrize("at", range(4))
def test_requests_with_a_redacted_message_keep_every_rule(thread: Thread, at: int) -> None:
    """Each message alone: of the user, with the call, with its result, and the last words."""
    redact(thread, thread.transcript()[at].id)

    assert exports_faults(thread) == []


def test_only_the_part_that_was_asked_for_goes(thread: Thread) -> None:
    """First the arguments, then the result of the same call; words beside the call stay."""
    call = thread.calls()[0].id

    redact(thread, call, part="arguments")
    asked, answered = thread.transcript()[1:3]
    redact(thread, call, part="result")

    assert asked.message.tool_calls[0].arguments == {"redacted": "A person has redacted these arguments."}
    assert answered.redaction is None
    assert thread.transcript()[2].message.tool_results[0].content == (
        Text("[A person has redacted this result.]"),
    )
    assert thread.transcript()[3].text == "Sent."


def test_the_record_of_a_redacted_call_says_so(thread: Thread) -> None:
    """Its state, its tool and its ids stay; what it was given and what it gave back are gone."""
    before = thread.calls()[0]
    redact(thread, before.id)

    traced = thread.trace(before.id)

    assert traced.record == before
    assert traced.arguments == '{"redacted":"A person has redacted these arguments."}'
    assert before.result is not None
    with pytest.raises(Forgotten) as gone:
        list(thread.artifacts.get(before.result))
    assert gone.value.why == f"{WHY} by eve: a password"


@pytest.mark.parametrize("what", ["call", "arguments", "result", "message"])
def test_the_repeat_guard_knows_a_redacted_call(store: Store, what: str) -> None:
    """The same call again is not made without a person, whether its arguments, its result or the message with it is gone."""
    made: list[str] = []

    @tool(effect="external_write")
    def pay(to: str) -> str:
        """Pay somebody."""
        made.append(to)
        return f"paid {to}"

    script = Script(use("pay", to=SECRET), say("Paid."), use("pay", to=SECRET), say("Paid again."))
    thread = store.thread("pay", agent=Agent("desk", backend=script, tools=[pay]))
    thread.run("Pay")
    call = thread.calls()[0].id
    if what == "message":
        redact(thread, next(each.id for each in thread.transcript() if each.role == "tool"))
    elif what == "call":
        redact(thread, call)
    else:
        redact(thread, call, part=what)

    again = thread.run("Pay once more")

    assert made == [SECRET]
    assert again.status == "waiting"


def test_a_call_that_is_not_settled_keeps_its_arguments(store: Store) -> None:
    """A person still has to see them: nothing is redacted until it is decided; then it is."""

    @tool(effect="external_write", ask=True)
    def pay(to: str) -> str:
        """Pay somebody."""
        return f"paid {to}"

    thread = store.thread(
        "pay", agent=Agent("desk", backend=Script(use("pay", to=SECRET), say("No.")), tools=[pay])
    )
    thread.run("Pay")
    call, message = thread.calls()[0].id, thread.transcript()[1].id

    for id in (call, message):
        with raises(Conflict, "call_not_settled"):
            redact(thread, id)
    thread.decide(call, "deny")
    thread.resume(thread.runs()[0].id)
    redact(thread, message)

    assert holds(engine_of(store)) == 0


def test_nothing_is_redacted_under_a_run(store: Store) -> None:
    """The run holds the words in memory; it is named."""
    refused: list[str | None] = []

    @tool(effect="read_only")
    def look() -> str:
        """Look."""
        with pytest.raises(Busy) as busy:
            redact(thread, first(thread))
        refused.append(busy.value.holder)
        return "nothing"

    thread = store.thread("talk", agent=Agent("desk", backend=Script(use("look"), say("No.")), tools=[look]))
    result = thread.run(f"My password is {SECRET}")

    assert refused == [result.run]
    assert thread.transcript()[0].redaction is None


def test_a_dry_run_changes_nothing_and_says_what_would_go(thread: Thread) -> None:
    """The same numbers as the redaction itself."""
    before, head = thread.transcript(), thread.head

    planned = redact(thread, before[0].id, dry_run=True)
    assert (thread.transcript(), thread.head) == (before, head)
    done = redact(thread, before[0].id)

    assert (planned.dry_run, planned.count, planned.messages) == (True, 1, (before[0].id,))
    assert (done.count, done.bytes, done.elsewhere) == (planned.count, planned.bytes, planned.elsewhere)


def test_the_report_names_every_place_with_the_same_words(thread: Thread, store: Store) -> None:
    """In this thread, in its state, in another thread and in a memory."""
    thread.put("/notes.json", {"password": SECRET})
    file = thread.artifacts.put(f"kept: {SECRET}".encode(), name="notes")
    store.memory("ann").add(f"Her password is {SECRET}", id="pw")
    with store.thread("other", agent="desk").change("say") as change:
        change.say("user", f"Is it {SECRET}?", id="theirs")

    report = redact(thread, first(thread), dry_run=True)

    found = {(each.place, each.what, each.id) for each in report.elsewhere}
    call, (_, asked, answered, _) = thread.calls()[0], [each.id for each in thread.transcript()]
    assert found == {
        ("thread 'talk'", "message", asked),
        ("thread 'talk'", "message", answered),
        ("thread 'talk'", "call", call.id),
        ("thread 'talk'", "artifact", call.result),
        ("thread 'talk'", "artifact", f"artifact://sha256/{file}"),
        ("thread 'talk'", "state", "/notes.json"),
        ("thread 'other'", "message", "theirs"),
        ("the memory of 'ann'", "memory", "pw"),
    }


def test_given_words_are_looked_for_instead(thread: Thread) -> None:
    """Also after the redaction, when the store does not know the words any more."""
    all_of(thread)
    with thread.change("say") as change:
        change.say("user", "Bob lives at Elm Street 5.", id="late")

    report = redact(thread, first(thread), words=["Elm Street"])

    assert [(each.what, each.id) for each in report.elsewhere] == [("message", "late")]
    assert report.count == 0


def test_an_artifact_is_redacted_by_its_reference(thread: Thread) -> None:
    """What has its name stays; reading it says why it is gone."""
    file = thread.artifacts.put(f"kept: {SECRET}".encode(), name="notes")

    report = redact(thread, f"artifact://sha256/{file}")

    assert report.count == 2
    with pytest.raises(Forgotten):
        list(thread.artifacts.get(file))


@pytest.mark.parametrize(("size", "is_kept"), [(100, True), (400_000, False)])
def test_a_result_that_the_state_holds_too_stays_there(store: Store, size: int, is_kept: bool) -> None:
    """The state can be read; a small result is the value itself, of a large one only the pieces are the same."""

    @tool(effect="read_only")
    def load() -> str:
        """Load a file."""
        return "x" * size

    thread = store.thread(
        "load", agent=Agent("desk", backend=Script(use("load"), say("Loaded.")), tools=[load])
    )
    thread.run("Load")
    call = thread.calls()[0]
    assert call.result is not None
    content = b"".join(thread.artifacts.get(call.result))
    thread.put("/copy", content)

    report = redact(thread, call.id, part="result")

    assert report.kept == ((call.result,) if is_kept else ())
    assert thread.get("/copy") == content
    assert "xxxx" not in repr(thread.transcript()[2].message)


def test_undo_redo_and_merge_go_over_redacted_messages(thread: Thread) -> None:
    """Nothing of them is refused because a message was redacted."""
    fork = thread.fork("other")
    with fork.change("say") as change:
        change.say("user", f"{SECRET} again", id="theirs")
        change.put("/x.json", 1)
    thread.run("Go on", id="second")
    all_of(thread)
    redact(thread, "theirs")

    thread.undo()
    thread.redo()
    thread.undo(2)
    thread.redo()
    thread.merge("other")
    thread.promote(fork)

    assert thread.transcript()[-1].text == NOTE
    assert thread.get("/x.json") == 1


def test_copy_and_backup_have_the_redaction_and_not_the_words(
    thread: Thread, store: Store, tmp_path: Path
) -> None:
    """A copy replays the writes with their tombstones and the cells."""
    all_of(thread)
    store.copy_to(tmp_path / "copy.db")

    with perdure.open(tmp_path / "copy.db") as copy:
        assert copy.thread("talk").transcript()[0].redaction == thread.transcript()[0].redaction
        assert holds(engine_of(copy)) == 0
        assert copy.verify().redacted == store.verify().redacted > 0
        assert equal(engine_of(store), engine_of(copy))


def test_a_backup_made_later_has_no_words(tmp_path: Path) -> None:
    """It is a copy of the file."""
    with perdure.open(tmp_path / "s.db") as store:
        with store.thread("talk", agent="desk").change("say") as change:
            change.say("user", SECRET, id="m")
        redact(store.thread("talk"), "m")
        store.backup(tmp_path / "b.db")

    assert SECRET.encode() not in (tmp_path / "b.db").read_bytes()


def test_a_git_export_says_that_a_message_was_redacted(thread: Thread, tmp_path: Path) -> None:
    """With who did it and why; a repository that was written before keeps what it has."""
    redact(thread, first(thread))

    git_export.export(thread, tmp_path / "g")

    name = next(each for each in tree(tmp_path / "g") if each.endswith("-user-first.md"))
    assert show(tmp_path / "g", name) == f"{NOTE}\n\n*In this message: it was redacted by eve: a password.*\n"
    assert clean(tmp_path / "g")


def test_a_list_that_is_added_again_does_not_bring_the_words_back(store: Store) -> None:
    """The redacted messages count as there, with their calls; what is new is added."""
    said = [
        {"role": "user", "content": f"My password is {SECRET}"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "send", "arguments": f'{{"to":"{SECRET}"}}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": f"sent {SECRET}"},
        {"role": "assistant", "content": "Sent."},
    ]
    thread = store.thread("talk", agent="desk")
    thread.add(said)
    for entry in thread.transcript()[:3]:
        redact(thread, entry.id)

    thread.add(said, once=True)
    thread.add([*said, {"role": "user", "content": "Thanks"}], whole=True)

    assert [each.text for each in thread.transcript()][-2:] == ["Sent.", "Thanks"]
    assert len(thread.transcript()) == 5
    assert holds(engine_of(store)) == 0


def test_a_session_that_is_imported_again_does_not_bring_the_words_back(store: Store, tmp_path: Path) -> None:
    """Neither the same file nor one that has grown: its original is not kept, and the report says so."""
    file = tmp_path / "s1.jsonl"
    file.write_text(line("u1", None, f"My password is {SECRET}"), encoding="utf-8")
    (session,) = import_sessions(store, file).sessions
    thread = store.thread(str(session.thread))
    message, original = first(thread), thread.get("/import/session")["originals"][0]["artifact"]
    redact(thread, message)
    redact(thread, f"artifact://sha256/{original}")
    assert holds(engine_of(store)) == 0

    (same,) = import_sessions(store, file).sessions
    with file.open("a", encoding="utf-8") as more:
        more.write(line("u2", "u1", "Is the shop open?"))
    (grown,) = import_sessions(store, file).sessions

    assert (same.messages, grown.messages, grown.edited) == (0, 1, ())
    assert "original" in {loss.what for loss in grown.losses}
    assert holds(engine_of(store)) == 0


def line(uuid: str, parent: str | None, words: str) -> str:
    """One line of a session of Claude Code."""
    message = {"role": "user", "content": words}
    return (
        json.dumps(
            {"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": "s1", "message": message}
        )
        + "\n"
    )


def test_the_same_input_again_is_the_same_run(thread: Thread, store: Store) -> None:
    """A client that repeats its request writes nothing."""
    all_of(thread)

    thread.run(f"My password is {SECRET}", id="first")

    assert holds(engine_of(store)) == 0


def test_verify_counts_what_was_redacted_and_what_was_forgotten_apart(thread: Thread, store: Store) -> None:
    """Neither is damage."""
    redact(thread, first(thread))

    report = store.verify()

    assert (report.ok, report.redacted, report.forgotten) == (True, 1, 0)


def test_a_tombstone_that_no_redaction_names_is_a_fault(store: Store) -> None:
    """Something that is gone as if a person had redacted it; control: for another reason it counts as forgotten."""
    thread = store.thread("talk", agent="desk")
    with thread.change("say") as change:
        change.say("user", "one", id="m1")
        change.say("user", "two", id="m2")
    bodies = [event.body for event in thread.log()[0].events if isinstance(event, MessageAppended)]
    forget(thread, bodies[0], "a policy")
    assert store.verify().ok

    forget(thread, bodies[1], f"{WHY} by eve: a password")

    report = store.verify()
    assert [fault.digest for fault in report.faults] == [bodies[1]]
    space = thread._space
    cells = space.engine.cells(space.name, prefix=REDACTED, limit=9)
    assert not cells
    store.thread("talk").rm()
    store.gc(store.gc_plan(RetentionPolicy(removed_threads=True)))


def forget(thread: Thread, digest: Digest, why: str) -> None:
    """Let the engine forget an object."""
    space = thread._space
    space.engine.forget(space.name, [digest], why=why, standing=space.engine.standing(space.name))


def test_an_edit_of_who_redacted_is_found(tmp_path: Path) -> None:
    """The cell has a digest, and is in the seal of its space."""
    with perdure.open(tmp_path / "s.db") as store:
        with store.thread("talk", agent="desk").change("say") as change:
            change.say("user", SECRET, id="m")
        redact(store.thread("talk"), "m")
    with sqlite3.connect(tmp_path / "s.db") as file:
        edited = file.execute(
            "UPDATE cells SET value = replace(value, 'eve', 'bob') WHERE name LIKE 'redacted/%'"
        )
    assert edited.rowcount == 1
    file.close()

    with perdure.open(tmp_path / "s.db", read_only=True) as store:
        assert not store.verify().ok


def test_a_redaction_that_was_interrupted_is_finished_by_another_one(
    thread: Thread, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its write and before the words went."""
    engine = type(engine_of(store))
    with monkeypatch.context() as patched:
        patched.setattr(engine, "forget", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            redact(thread, first(thread))
    assert store.verify().ok
    assert SECRET in thread.transcript()[0].text

    redact(thread, first(thread))

    assert thread.transcript()[0].text == NOTE


def test_what_stands_in_the_place_of_an_undone_message_goes_with_it(store: Store) -> None:
    """A policy takes the words beside a redacted call too; the same note for a message that stays is still there."""
    beside = step(say("Beside the call."), use("send", to="bob", text=SECRET))
    script = Script(say("Hello."), beside, say("Sent."))
    thread = store.thread("talk", agent=Agent("desk", backend=script, tools=[send]))
    thread.run("stays", id="stays")
    thread.run("goes", id="goes")
    redact(thread, "stays")
    redact(thread, "goes")
    redact(thread, thread.calls()[0].id)
    assert holds(engine_of(store), "Beside the call.") == 1
    thread.undo()
    with thread.change("say") as change:
        change.say("user", "later")

    store.gc(store.gc_plan(RetentionPolicy(undone_after_days=0)))

    assert holds(engine_of(store), "Beside the call.") == 0
    assert [each.text for each in thread.transcript()] == [NOTE, "Hello.", "later"]


@pytest.mark.parametrize(
    ("id", "part", "kind", "code"),
    [
        ("nothing", None, NotFound, "redaction_not_found"),
        ("m", "words", Invalid, "part_unknown"),
        ("m", "result", NotFound, "redaction_not_found"),  # only a call has parts
    ],
)
def test_what_is_not_there_is_refused(
    store: Store, id: str, part: str | None, kind: type[PerdureError], code: str
) -> None:
    """Nothing is redacted then."""
    thread = store.thread("talk", agent="desk")
    with thread.change("say") as change:
        change.say("user", "Hello", id="m")

    with raises(kind, code):
        redact(thread, id, part=part)

    assert thread.transcript()[0].text == "Hello"


def test_it_can_be_awaited(tmp_path: Path) -> None:
    """The same method of the awaitable interface."""

    async def awaited() -> str:
        async with aio.open(tmp_path / "s.db") as store:
            thread = await store.thread("talk", agent="desk")
            async with thread.change("say") as change:
                await change.say("user", SECRET, id="m")
            await thread.redact("m", why="a password")
            return (await thread.transcript())[0].text

    assert asyncio.run(awaited()) == NOTE
