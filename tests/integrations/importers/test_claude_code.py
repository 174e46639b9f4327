"""Sessions of Claude Code become threads: every message and call once, branches as timelines, sub-agents as threads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Store
from perdure.integrations.importers import import_sessions
from tests.crash.campaign import SEED, sized
from tests.integrations.importers.claude_sessions import (
    RELEASES,
    SESSION,
    ClaudeWriter,
    counted,
    write_project,
)
from tests.integrations.importers.counts import Counts, import_faults, in_store, in_thread, sound

THREAD = f"claude-code:{SESSION}"
CHILD = f"{THREAD}/agent-a1b2c3d4"
SEEDS = range(SEED, SEED + sized(1, 30))


@pytest.fixture
def writer() -> ClaudeWriter:
    """A session that is to be written by hand."""
    return ClaudeWriter("2.1.90", SEED)


def saved(path: Path, content: bytes) -> Path:
    """Save a session under its name."""
    file = path / f"{SESSION}.jsonl"
    file.write_bytes(content)
    return file


def texts(store: Store, timeline: str = "main") -> list[str]:
    """What was said on a timeline of the session."""
    return [entry.text for entry in store.thread(THREAD).on(timeline).transcript() if entry.text]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("release", RELEASES)
def test_every_message_and_call_is_imported_once(tmp_path: Path, release: str, seed: int) -> None:
    """The counts are those of the files, every export is valid, and a second import adds nothing."""
    files = write_project(tmp_path, release, seed, sized(4, 12))
    wanted = sum((counted(file.read_bytes()) for file in files), Counts())

    assert import_faults(tmp_path, wanted) == []


@pytest.mark.parametrize("release", RELEASES)
def test_a_file_may_end_at_any_line(tmp_path: Path, release: str) -> None:
    """What is there is imported, and what follows later is added; a line that is torn is no error."""
    (whole, *_) = write_project(tmp_path / "whole", release, SEED)
    lines = whole.read_bytes().splitlines(keepends=True)
    tmp_path.joinpath("cut").mkdir()
    for end in range(1, len(lines) + 1, sized(9, 1)):
        part = b"".join(lines[:end])
        torn = lines[end][: len(lines[end]) // 2] if end < len(lines) else b""
        file = saved(tmp_path / "cut", part + torn)
        with perdure.open("memory:") as store:
            report = import_sessions(store, file)
            assert (end, in_store(store), report.sessions[0].losses) == (end, counted(part), ())
            assert report.sessions[0].torn is bool(torn)

            file.write_bytes(whole.read_bytes())
            rest = import_sessions(store, file)

            assert (end, [each.edited for each in rest.sessions if each.edited]) == (end, [])
            found, wanted = in_store(store), counted(whole.read_bytes())
            assert (end, found.inputs, found.calls, found.results) == (
                end,
                wanted.inputs,
                wanted.calls,
                wanted.results,
            )
            assert store.verify().ok


def test_a_session_that_grows_line_by_line_ends_as_if_imported_at_once(store: Store, tmp_path: Path) -> None:
    """Also where lines come in the middle of a reply, and where the session forks."""
    (whole, *_) = write_project(tmp_path / "whole", "2.1.90", SEED)
    lines = whole.read_bytes().splitlines(keepends=True)
    for end in range(1, len(lines) + 1, sized(3, 1)):
        import_sessions(store, saved(tmp_path, b"".join(lines[:end])))
    import_sessions(store, saved(tmp_path, b"".join(lines)))

    found, wanted = in_store(store), counted(b"".join(lines))
    assert (found.inputs, found.calls, found.results) == (wanted.inputs, wanted.calls, wanted.results)
    assert sound(store) == []


def test_the_report_names_a_reply_that_was_imported_in_two_parts(store: Store, tmp_path: Path) -> None:
    """Both parts are there, in their order; a reply that was complete is not named."""
    lines = [
        line_of("user", "u1", None, "Hello."),
        *(reply(f"u{at}", f"u{at - 1}", f"Part {at}.") for at in (2, 3)),
    ]
    first = import_sessions(store, saved(tmp_path, b"".join(lines[:2])))

    second = import_sessions(store, saved(tmp_path, b"".join(lines)))

    assert first.sessions[0].losses == ()
    assert [(loss.what, loss.where) for loss in second.sessions[0].losses] == [("reply", "line 3")]
    assert texts(store) == ["Hello.", "Part 2.", "Part 3."]


def line_of(role: str, uuid: str, parent: str | None, content: Any, **more: Any) -> bytes:
    """One line of a session."""
    message = {"role": role, "content": content, **more}
    return (
        json.dumps(
            {"type": role, "uuid": uuid, "parentUuid": parent, "sessionId": SESSION, "message": message}
        ).encode()
        + b"\n"
    )


def reply(uuid: str, parent: str, text: str) -> bytes:
    """One line of the reply m1."""
    return line_of(
        "assistant", uuid, parent, [{"type": "text", "text": text}], id="m1", model="claude-opus-4-5"
    )


def test_results_of_parallel_calls_are_no_branch(store: Store, tmp_path: Path, writer: ClaudeWriter) -> None:
    """Each hangs on the line of its call; the reply and its results are one way."""
    writer.ask("Look.")
    writer.work("Read", "Grep", "Bash")
    writer.say("Done.")

    import_sessions(store, saved(tmp_path, writer.bytes()))

    thread = store.thread(THREAD)
    assert [hold.head.timeline for hold in thread.timelines()] == ["main"]
    assert in_thread(thread) == Counts(inputs=1, replies=2, calls=3, results=3)
    assert {call.state for call in thread.calls()} <= {"succeeded", "failed"}


def test_where_the_user_went_back_there_is_a_timeline(
    store: Store, tmp_path: Path, writer: ClaudeWriter
) -> None:
    """The newest end is main; both share what was said before."""
    writer.ask("One?")
    writer.say("First.")
    writer.ask("Two?")
    writer.say("Old.")
    writer.tip = writer.turns[-1]
    writer.ask("Other?")
    writer.say("New.")

    import_sessions(store, saved(tmp_path, writer.bytes()))

    (branch,) = (h.head.timeline for h in store.thread(THREAD).timelines() if h.head.timeline != "main")
    assert texts(store) == ["One?", "First.", "Other?", "New."]
    assert texts(store, branch) == ["One?", "First.", "Two?", "Old."]


def test_a_compaction_goes_on_and_its_summary_is_not_the_users(
    store: Store, tmp_path: Path, writer: ClaudeWriter
) -> None:
    """The boundary has no parent; what follows is on the same timeline, without the summary and without meta lines."""
    writer.ask("One?")
    writer.say("First.")
    writer.compact()
    writer.line("user", isMeta=True, message={"role": "user", "content": "Caveat"})
    writer.ask("Two?")
    writer.say("Second.")

    report = import_sessions(store, saved(tmp_path, writer.bytes()))

    assert texts(store) == ["One?", "First.", "Two?", "Second."]
    assert report.sessions[0].unmapped == {
        "system/compact_boundary": 1,
        "user (isCompactSummary)": 1,
        "user (isMeta)": 1,
    }


def test_sub_agents_are_threads_with_a_link(store: Store, tmp_path: Path) -> None:
    """Both threads name each other, and the call that began the child."""
    write_project(tmp_path, "2.1.90", SEED)

    import_sessions(store, tmp_path)

    parent, child = store.thread(THREAD), store.thread(CHILD)
    (link,) = parent.get("/import/links")
    assert (link["kind"], link["thread"], link["call"][:6]) == ("child", CHILD, "toolu_")
    assert [each["thread"] for each in child.get("/import/links")] == [THREAD]
    assert child.transcript()[0].text == "Find the bug."


def test_the_originals_are_kept_to_the_byte(store: Store, tmp_path: Path) -> None:
    """The session and its long outputs, by digest."""
    file, *_ = write_project(tmp_path, "2.1.90", SEED)

    import_sessions(store, file)

    thread = store.thread(THREAD)
    kept = {each["name"]: each["artifact"] for each in thread.get("/import/session")["originals"]}
    assert b"".join(thread.artifacts.get(kept[file.name])) == file.read_bytes()
    assert b"".join(thread.artifacts.get(kept["tool-results/toolu_1.txt"])) == b"a long output"


def test_a_long_output_that_is_kept_is_not_passed_over(
    store: Store, tmp_path: Path, writer: ClaudeWriter
) -> None:
    """Also in a later import; control: a file beside it is."""
    writer.ask("Look.")
    file = saved(tmp_path, writer.bytes())
    kept = file.with_suffix("") / "tool-results" / "toolu_1.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("a long output")
    (kept.parent.parent / "notes.txt").write_text("a note")

    first, again = import_sessions(store, tmp_path), import_sessions(store, tmp_path)

    assert [each.others for each in (first, again)] == [1, 1]
    assert first.others_first == (str(kept.parent.parent / "notes.txt"),)


def test_what_a_tool_returned_beside_its_message_is_kept(
    store: Store, tmp_path: Path, writer: ClaudeWriter
) -> None:
    """`toolUseResult` is with the message, where no vendor looks."""
    writer.ask("Look.")
    writer.work("Read", filePath="pay.py")

    import_sessions(store, saved(tmp_path, writer.bytes()))

    metadata: Any = json.loads(store.thread(THREAD).transcript()[-1].message.vendor_metadata or "{}")
    assert metadata["claude-code"][0]["toolUseResult"] == {"stdout": "…", "filePath": "pay.py"}


def test_each_entry_is_a_moment(store: Store, tmp_path: Path, writer: ClaudeWriter) -> None:
    """The uuid of a line names its commit."""
    writer.ask("One?")
    asked = writer.tip
    writer.say("First.")

    import_sessions(store, saved(tmp_path, writer.bytes()))

    view = store.thread(THREAD).at(f"claude-code:{asked}")
    assert [entry.text for entry in view.transcript()] == ["One?"]


def test_what_went_on_here_is_not_mixed_with_what_went_on_there(
    store: Store, tmp_path: Path, writer: ClaudeWriter
) -> None:
    """The rest of a session goes to a timeline of its own if the thread has other messages after it."""
    writer.ask("One?")
    writer.say("First.")
    import_sessions(store, saved(tmp_path, writer.bytes()))
    with store.thread(THREAD).change("here") as change:
        change.say("user", "Here.")
    writer.ask("There?")

    report = import_sessions(store, saved(tmp_path, writer.bytes()))

    (branch,) = report.sessions[0].timelines
    assert texts(store) == ["One?", "First.", "Here."]
    assert texts(store, branch) == ["One?", "First.", "There?"]


def test_an_unanswered_call_cannot_be_started(store: Store, tmp_path: Path, writer: ClaudeWriter) -> None:
    """Its outcome is unknown, and no run has it."""
    writer.ask("Pay.")
    writer.work("pay", answered=False)

    import_sessions(store, saved(tmp_path, writer.bytes()))

    (call,) = store.thread(THREAD).calls()
    assert (call.state, call.origin, call.run) == ("unknown", "import", None)


def test_a_lost_parent_means_the_line_before(store: Store, tmp_path: Path, writer: ClaudeWriter) -> None:
    """A line whose parent is not in the file follows the line before it, and is on main."""
    writer.ask("One?")
    writer.tip = "not-in-this-file"
    writer.say("First.")

    import_sessions(store, saved(tmp_path, writer.bytes()))

    assert texts(store) == ["One?", "First."]


@pytest.mark.parametrize("release", RELEASES)
def test_a_flipped_bit_is_read_around(tmp_path: Path, release: str) -> None:
    """The file is imported, with the damaged line named if it is no JSON, and what is stored is sound."""
    (whole, *_) = write_project(tmp_path / "whole", release, SEED)
    content = whole.read_bytes()
    for at in range(11, len(content) * 8, len(content) * 8 // sized(3, 600)):
        damaged = bytearray(content)
        damaged[at // 8] ^= 1 << at % 8
        with perdure.open("memory:") as store:
            report = import_sessions(store, saved(tmp_path, bytes(damaged)))
            wanted = counted(bytes(damaged))
            found = in_store(store)
            losses = [loss for each in report.sessions for loss in each.losses]

            assert (at, sound(store)) == (at, [])
            assert all(loss.where.startswith("line ") for loss in losses)
            if all(
                loss.what == "line" for loss in losses
            ):  # the lines around one that is no JSON are all there
                assert (at, found.inputs, found.calls, found.results) == (
                    at,
                    wanted.inputs,
                    wanted.calls,
                    wanted.results,
                )
                assert found.replies in (wanted.replies, wanted.replies + 1)  # one may be in two threads then
