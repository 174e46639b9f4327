"""Artifacts by name: what a reference leads to as of a commit, where it comes from, and what is shown of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Store, Thread, testing
from perdure.errors import Invalid, NotFound
from perdure.history import artifact_names
from perdure.model.event import ArtifactCreated
from tests.coded import raises
from tests.selection import engines

_names = count()


@pytest.fixture(params=engines("sqlite", "memory"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store with nothing in it."""
    url = str(tmp_path / "agents.db") if request.param == "sqlite" else f"memory:named-{next(_names)}"
    with perdure.open(url) as opened:
        yield opened


@pytest.fixture
def thread(store: Store) -> Thread:
    """A thread with nothing in it."""
    return store.thread("t", agent="a")


def read(thread: Thread, reference: str) -> bytes:
    """The content that a reference leads to."""
    return b"".join(thread.artifacts.get(reference))


def test_a_name_leads_to_one_digest_as_of_a_commit(thread: Thread) -> None:
    """Put again, it leads elsewhere from then on; at an earlier moment it leads to what it did then."""
    first = thread.artifacts.put(b"one", name="design/draft")
    second = thread.artifacts.put(b"two", name="design/draft")

    assert thread.artifacts.resolve("artifact://design/draft") == second
    assert thread.artifacts.resolve("artifact://design/draft", at="HEAD~1") == first
    assert read(thread, "artifact://design/draft") == b"two"
    assert thread.artifacts.names() == {"design/draft": second}
    with raises(NotFound, "artifact_not_found", name="design/draft"):
        thread.artifacts.resolve("artifact://design/draft", at=None)


def test_naming_is_a_commit_with_its_event(thread: Thread) -> None:
    """It can be seen in the log and undone like any change."""
    digest = thread.artifacts.put(b"one", name="design/draft", media_type="text/plain")

    (entry,) = thread.log()
    (event,) = entry.events
    assert isinstance(event, ArtifactCreated)
    assert (event.artifact, event.name, event.size) == (digest, "design/draft", 3)

    thread.undo()
    with pytest.raises(NotFound):
        thread.artifacts.resolve("artifact://design/draft")
    thread.redo()
    assert thread.artifacts.resolve("artifact://design/draft") == digest


def test_a_fork_has_names_of_its_own(thread: Thread) -> None:
    """It begins with those of its fork commit, and what it lets them lead to is seen there alone."""
    first = thread.artifacts.put(b"one", name="design/draft")
    fork = thread.fork("what-if")

    second = fork.artifacts.put(b"two", name="design/draft")

    assert thread.artifacts.resolve("artifact://design/draft") == first
    assert fork.artifacts.resolve("artifact://design/draft") == second


def test_the_list_says_where_an_artifact_comes_from(thread: Thread) -> None:
    """The commit that named it; what was only listed has none."""
    named = thread.artifacts.put(b"one", name="design/draft")
    plain = thread.artifacts.put(b"two", name="notes.txt")

    listed = {each.digest: each for each in thread.artifacts.ls()}

    assert (listed[named].name, listed[named].commit) == ("design/draft", thread.head.commit)
    assert (listed[plain].name, listed[plain].commit) == ("notes.txt", None)
    assert thread.artifacts.show("artifact://design/draft") == listed[named]


def test_the_result_of_a_call_has_a_name_and_an_origin(store: Store) -> None:
    """`artifact://tool-results/<call>`, once its round is in the history of the line."""

    @perdure.tool(effect="none")
    def look() -> str:
        """Look."""
        return "found"

    agent = Agent("a", backend=testing.Script(testing.use("look"), testing.say("ok")), tools=[look])
    thread = store.thread("t", agent=agent)
    run = thread.run("Look")
    (call,) = thread.calls()
    reference = f"artifact://tool-results/{call.id}"

    shown = thread.artifacts.show(reference)
    (listed,) = thread.artifacts.ls(calls=True)

    assert read(thread, reference) == b"found"
    assert (shown.call, shown.run) == (call.id, run.run)
    assert shown.commit in [entry.digest for entry in thread.log()]
    assert (listed.name, listed.call) == (f"tool-results/{call.id}", call.id)
    with pytest.raises(NotFound):
        thread.artifacts.resolve(reference, at=thread.log()[-1].digest)


def test_another_thread_s_and_agent_s_artifacts_are_not_resolved_from_here(store: Store) -> None:
    """By name, by digest, by call: nothing of another's; the control is the thread that has them."""
    theirs = store.thread("theirs", agent="a")
    digest = theirs.artifacts.put(b"secret", name="design/draft")
    others = [store.thread("mine", agent="a"), store.thread("elsewhere", agent="b")]
    references = ["artifact://design/draft", f"artifact://sha256/{digest}", "artifact://tool-results/x"]

    for other in others:
        other.put("/x.json", 1)
        for reference in references:
            with pytest.raises(NotFound):
                other.artifacts.resolve(reference)
            with pytest.raises(NotFound):
                other.artifacts.get(reference)
    assert [theirs.artifacts.resolve(each) for each in references[:2]] == [digest, digest]


@pytest.mark.parametrize(
    "reference",
    [
        "https://example.org/x",
        "file:///etc/passwd",
        "artifact://",
        "artifact://one",
        "artifact://../x",
        "artifact://a//b",
        "artifact://sha256/short",
        "artifact://design/draft?x=1",
        "ARTIFACT://design/draft",
        "",
    ],
)
def test_nothing_else_is_a_reference(thread: Thread, reference: str) -> None:
    """What is not of the form is refused, and never looked for anywhere."""
    with pytest.raises(Invalid):
        thread.artifacts.resolve(reference)


@pytest.mark.parametrize("name", ["sha256/x", "tool-results/x", "one", "a b/c", "/a/b", "a/../b", "é/b"])
def test_a_name_that_no_reference_can_name_is_a_label(thread: Thread, name: str) -> None:
    """It is listed as that, and commits nothing."""
    thread.artifacts.put(b"x", name=name)

    assert [each.name for each in thread.artifacts.ls()] == [name]
    assert thread.head.commit is None
    assert not artifact_names.is_referable(name)


def test_a_preview_is_the_head_of_a_text(thread: Thread) -> None:
    """Cut at a letter, with what the whole is; of anything else, only that."""
    long = thread.artifacts.put("é".encode() * 3_000, name="design/long")
    image = thread.artifacts.put(b"\x89PNG\r\n\x1a\n" + b"\0" * 50)
    short = thread.artifacts.put(b'{"a": 1}', media_type="application/json")

    cut = thread.artifacts.preview(long, bytes_max=11)
    seen = thread.artifacts.preview(image)
    whole = thread.artifacts.preview(short)

    assert (cut.text, cut.is_whole, cut.size) == ("é" * 5, False, 6_000)
    assert (seen.text, seen.media_type, seen.is_whole) == (None, "image/png", False)
    assert (whole.text, whole.is_whole) == ('{"a": 1}', True)
    assert str(cut).startswith(f"[artifact://sha256/{long}: text/plain")
    assert str(cut).endswith("[… the rest is in the artifact]")


def test_names_survive_replacing_the_state_and_verify(store: Store, thread: Thread) -> None:
    """They belong to Perdure: no change by hand reaches them."""
    digest = thread.artifacts.put(b"one", name="design/draft")
    with thread.change("reset") as change:
        change.replace({"/only.json": 1})

    assert thread.artifacts.resolve("artifact://design/draft") == digest
    with raises(Invalid, "path_reserved"):
        thread.put(artifact_names.NAMES + "design/draft", {})
    assert store.verify().ok


def test_many_who_name_at_once_all_succeed(store: Store) -> None:
    """Each goes on top of the others; the last one wins the name."""
    from concurrent.futures import ThreadPoolExecutor

    store.thread("t", agent="a")

    def put(number: int) -> str:
        return store.thread("t").artifacts.put(f"{number}".encode(), name=f"design/d{number % 3}")

    with ThreadPoolExecutor(4) as tool_threads:
        made = list(tool_threads.map(put, range(12)))

    assert len(store.thread("t").log()) == 12
    assert set(store.thread("t").artifacts.names().values()) <= set(made)
    assert len(store.thread("t").artifacts.names()) == 3
