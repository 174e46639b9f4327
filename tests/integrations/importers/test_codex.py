"""Sessions of the Codex CLI become threads: items once, events not again, turns that were taken back undone."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

import perdure
from perdure import Store
from perdure.integrations.importers import import_sessions
from tests.crash.campaign import SEED, sized
from tests.integrations.importers.codex_sessions import (
    RELEASES,
    SESSION,
    CodexWriter,
    counted,
    write_rollout,
)
from tests.integrations.importers.counts import import_faults, in_store, sound

THREAD = f"codex:{SESSION}"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
def writer() -> CodexWriter:
    """A session that is to be written by hand."""
    return CodexWriter("0.98.0", SEED)


def saved(path: Path, content: bytes) -> Path:
    """Save a session under its name."""
    path.mkdir(exist_ok=True)
    file = path / f"rollout-{SESSION}.jsonl"
    file.write_bytes(content)
    return file


def texts(store: Store) -> list[str]:
    """What was said."""
    return [entry.text for entry in store.thread(THREAD).transcript() if entry.text]


@pytest.mark.parametrize("seed", range(SEED, SEED + sized(1, 30)))
@pytest.mark.parametrize("release", RELEASES)
def test_every_item_is_imported_once(tmp_path: Path, release: str, seed: int) -> None:
    """The counts are those of the file without its events, every export is valid, and a second import adds nothing."""
    file = write_rollout(tmp_path, release, seed, sized(4, 12))

    assert import_faults(tmp_path, counted(file.read_bytes())) == []


@pytest.mark.parametrize("release", RELEASES)
def test_a_file_may_end_at_any_line(tmp_path: Path, release: str) -> None:
    """What is there is imported, and what follows later is added; a line that is torn is no error."""
    whole = write_rollout(tmp_path / "whole", release, SEED)
    lines = whole.read_bytes().splitlines(keepends=True)
    for end in range(1, len(lines) + 1, sized(16, 1)):
        part = b"".join(lines[:end])
        torn = lines[end][:9] if end < len(lines) else b""
        file = saved(tmp_path / "cut", part + torn)
        with perdure.open("memory:") as store:
            report = import_sessions(store, file)
            assert (end, in_store(store), report.sessions[0].torn) == (end, counted(part), bool(torn))
            assert (end, sound(store)) == (end, [])

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


def test_turns_that_were_taken_back_are_undone_and_can_be_visited(
    store: Store, tmp_path: Path, writer: CodexWriter
) -> None:
    """They are not in the transcript, and their moments have names."""
    writer.ask("One?")
    writer.say("First.")
    writer.ask("Two?")
    writer.say("Second.")
    writer.roll_back(1)

    import_sessions(store, saved(tmp_path, writer.bytes()))

    line = next(each for each in writer.bytes().splitlines() if b"Two?" in each)
    number = writer.bytes().splitlines().index(line) + 1
    name = f"codex:{number}-{sha256(line).hexdigest()[:12]}"
    assert texts(store) == ["One?", "First."]
    assert store.thread(THREAD).at(name).transcript()[-1].text == "Two?"


def test_a_rollback_that_comes_later_undoes_what_was_imported(
    store: Store, tmp_path: Path, writer: CodexWriter
) -> None:
    """The turn was imported, then the session took it back and went on."""
    writer.ask("One?")
    writer.say("First.")
    writer.ask("Two?")
    writer.say("Second.")
    import_sessions(store, saved(tmp_path, writer.bytes()))
    writer.roll_back(1)
    writer.ask("Three?")

    import_sessions(store, saved(tmp_path, writer.bytes()))

    assert texts(store) == ["One?", "First.", "Three?"]
    assert len(store.thread(THREAD).timelines()) == 1


def test_what_the_tool_wrote_is_nobodys_words(store: Store, tmp_path: Path, writer: CodexWriter) -> None:
    """Neither the environment, nor instructions, nor the developer's messages are in the transcript or the system."""
    writer.ask("One?")

    report = import_sessions(store, saved(tmp_path, writer.bytes()))

    assert texts(store) == ["One?"]
    assert report.sessions[0].unmapped["message that the tool wrote"] == 2
    assert report.sessions[0].unmapped["message of the developer"] == 1
    assert store.thread(THREAD).export("openai-chat").body["messages"][0]["role"] == "user"


def test_words_of_the_user_that_only_begin_like_a_tag_are_the_users(
    store: Store, tmp_path: Path, writer: CodexWriter
) -> None:
    """Control: the tag has to be closed at the end."""
    writer.ask("<environment_context> is what the file calls it. Why?")

    import_sessions(store, saved(tmp_path, writer.bytes()))

    assert len(texts(store)) == 1


def test_a_tag_that_no_event_repeats_is_the_tools(store: Store, tmp_path: Path, writer: CodexWriter) -> None:
    """Tools invent new tags; the events have what the user said."""
    writer.message("user", "<recommended_plugins>x</recommended_plugins>")
    writer.ask("<b>Is this bold?</b>")

    import_sessions(store, saved(tmp_path, writer.bytes()))

    assert texts(store) == ["<b>Is this bold?</b>"]


def test_what_the_tool_writes_around_a_picture_is_not_the_users(
    store: Store, tmp_path: Path, writer: CodexWriter
) -> None:
    """Nor is the task of a review that the user began by a command."""
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}
    texts_of = [
        {"type": "input_text", "text": text} for text in ("<image name=[Image #1]>", "</image>", "Look")
    ]
    writer.message("user", "<user_action>\n  <action>review</action>\n</user_action>")
    writer.item("message", role="user", content=[texts_of[0], picture, *texts_of[1:]])

    import_sessions(store, saved(tmp_path, writer.bytes()))

    assert texts(store) == ["Look"]
    assert sound(store) == []


def test_an_event_may_tell_the_words_with_other_spaces(
    store: Store, tmp_path: Path, writer: CodexWriter
) -> None:
    """Or with more words around them: what the user said in a tag of their own is theirs."""
    writer.message("user", "<b>\nbold\n</b>")
    writer.event("user_message", message="<b>\nbold\n</b>\n and more")

    import_sessions(store, saved(tmp_path, writer.bytes()))

    assert texts(store) == ["<b>\nbold\n</b>"]


def test_a_compaction_changes_nothing_that_was_said(
    store: Store, tmp_path: Path, writer: CodexWriter
) -> None:
    """Its replacement repeats messages, which are not added again."""
    writer.ask("Question 0?")
    writer.say("First.")
    writer.compact()
    writer.ask("Two?")

    import_sessions(store, saved(tmp_path, writer.bytes()))

    assert texts(store) == ["Question 0?", "First.", "Two?"]


def test_the_model_of_each_turn_is_known(store: Store, tmp_path: Path, writer: CodexWriter) -> None:
    """It is that of the last turn context."""
    writer.ask("One?")
    writer.say("First.")

    import_sessions(store, saved(tmp_path, writer.bytes()))

    assert [entry.model for entry in store.thread(THREAD).transcript()] == [None, "gpt-5.6"]


def test_a_fork_names_the_session_that_it_comes_from(store: Store, tmp_path: Path) -> None:
    """The first description is that of the session; a second one is that of its origin."""
    writer = CodexWriter("0.98.0", SEED, session="019a2d7a-41c4-78b1-b7cc-000000000002")
    writer.lines[0]["payload"]["forked_from_id"] = SESSION
    writer.put("session_meta", {"id": SESSION, "cwd": "/"})
    writer.ask("One?")

    (session,) = import_sessions(store, saved(tmp_path, writer.bytes())).sessions

    assert session.session == "019a2d7a-41c4-78b1-b7cc-000000000002"
    (link,) = store.thread(str(session.thread)).get("/import/links")
    assert (link["kind"], link["thread"]) == ("forked_from", THREAD)


@pytest.mark.parametrize("release", RELEASES)
def test_a_flipped_bit_is_read_around(tmp_path: Path, release: str) -> None:
    """The file is imported, with the damaged line named if it is no JSON, and what is stored is sound."""
    content = write_rollout(tmp_path / "whole", release, SEED).read_bytes()
    for at in range(7, len(content) * 8, len(content) * 8 // sized(6, 600)):
        damaged = bytearray(content)
        damaged[at // 8] ^= 1 << at % 8
        with perdure.open("memory:") as store:
            (report,) = import_sessions(store, saved(tmp_path / "cut", bytes(damaged))).sessions
            found, wanted = in_store(store), counted(bytes(damaged))

            assert (at, sound(store)) == (at, [])
            assert all(loss.where.startswith("line ") for loss in report.losses)
            is_words = b'"user"' in content[content.rfind(b"\n", 0, at // 8) + 1 :].partition(b"\n")[0]
            if not is_words and all(loss.what == "line" for loss in report.losses):
                assert (at, found) == (at, wanted)  # whose words a damaged text is cannot be known
