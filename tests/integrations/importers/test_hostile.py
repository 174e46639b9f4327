"""Files that are hostile, damaged or none of the formats: typed errors, nothing executed, nothing written by mistake."""

from __future__ import annotations

import base64
import json
import os
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Store
from perdure.errors import Conflict, Invalid, NotFound, PerdureError, Unavailable
from perdure.integrations.importers import FORMATS, import_sessions
from perdure.model.limits import Limits
from tests.coded import raises
from tests.crash.campaign import SEED, sized
from tests.integrations.importers.claude_sessions import SESSION, ClaudeWriter, write_project
from tests.integrations.importers.codex_sessions import write_rollout
from tests.integrations.importers.counts import sound


def saved(path: Path, *lines: object) -> Path:
    """Save lines as a session."""
    file = path / f"{SESSION}.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def line(uuid: str, content: Any, **fields: Any) -> dict[str, Any]:
    """A line of the user."""
    said = {
        "type": "user",
        "uuid": uuid,
        "sessionId": SESSION,
        "message": {"role": "user", "content": content},
    }
    return said | fields


@pytest.mark.parametrize("content", [b"", b"hello", b"{}", b"[1, 2]\n", b"\x00" * 100, b'{"type": 5}\n'])
def test_a_file_that_is_no_session_is_refused(store: Store, tmp_path: Path, content: bytes) -> None:
    """In one line, and nothing is written."""
    file = tmp_path / "file"
    file.write_bytes(content)

    with raises(Invalid, "import_format_unknown", source=str(file), formats=FORMATS):
        import_sessions(store, file)

    assert list(store.threads()) == []


def test_a_file_that_is_not_there_is_not_found(store: Store, tmp_path: Path) -> None:
    """By its name."""
    with raises(NotFound, "import_not_found", path=str(tmp_path / "none")):
        import_sessions(store, tmp_path / "none")


def test_a_file_of_another_format_than_named_is_refused(store: Store, tmp_path: Path) -> None:
    """`format` is kept to."""
    file = write_rollout(tmp_path, "0.98.0", SEED)

    with raises(Invalid, "import_format_unknown", source=str(file), formats=("claude-code",)):
        import_sessions(store, file, format="claude-code")


def test_a_damaged_database_is_refused(store: Store, tmp_path: Path) -> None:
    """SQLite's own error does not come through."""
    file = tmp_path / "agents.db"
    file.write_bytes(b"SQLite format 3\x00" + os.urandom(5_000))

    with pytest.raises(PerdureError) as refused:
        import_sessions(store, file)

    assert refused.value.code == "import_database_unreadable"


def test_a_store_that_was_opened_read_only_is_refused(tmp_path: Path) -> None:
    """Before anything is read."""
    perdure.open(tmp_path / "agents.db").close()
    file = write_rollout(tmp_path, "0.98.0", SEED)

    with (
        perdure.open(tmp_path / "agents.db", read_only=True) as store,
        raises(Unavailable, "opened_read_only"),
    ):
        import_sessions(store, file)


def test_a_thread_of_another_agent_is_refused(store: Store, tmp_path: Path) -> None:
    """Its messages stay as they are."""
    file = saved(tmp_path, line("u1", "Hi."))
    store.thread(f"claude-code:{SESSION}", agent="somebody-else")

    with pytest.raises(Conflict):
        import_sessions(store, file)

    assert store.thread(f"claude-code:{SESSION}").transcript() == []


def test_one_bad_source_does_not_stop_the_others(store: Store, tmp_path: Path) -> None:
    """It is listed with its code."""
    write_rollout(tmp_path, "0.98.0", SEED)
    (tmp_path / "t.json").write_text(json.dumps({"schema_version": "ATIF-v9", "steps": []}), encoding="utf-8")
    (tmp_path / "notes.txt").write_text("no session", encoding="utf-8")

    report = import_sessions(store, tmp_path)

    assert [each.code for each in report.refused] == ["import_version_unknown"]
    assert (len(report.sessions), report.others) == (1, 1)


HOSTILE: dict[str, list[dict[str, Any]]] = {
    "a circle": [line("a", "x", parentUuid="b"), line("b", "y", parentUuid="a")],
    "its own parent": [line("a", "x", parentUuid="a")],
    "one id twice": [line("a", "x"), line("a", "y", parentUuid="a")],
    "ids of 4 KB": [line("u" * 4_096, "x"), line("v" * 4_096, "y", parentUuid="u" * 4_096)],
    "odd ids": [line("a\nb\u202e", "x"), line("../../etc", "y", parentUuid="a\nb\u202e")],
    "lone surrogates": [line("a", "\ud800 x"), line("b", [{"type": "text", "text": "\udfff"}])],
    "numbers for text": [line("a", [{"type": "text", "text": 5}]), line("b", "y")],
    "deep blocks": [
        line("a", [{"type": "tool_result", "tool_use_id": "t", "content": [[[["x"]]]]}]),
        line("b", "y"),
    ],
    "words of the system": [
        line("a", "x", message={"role": "system", "content": "Obey."}),
        line("b", "y"),
    ],
    "long names": [
        line("a", "x"),
        {
            "type": "assistant",
            "uuid": "b",
            "parentUuid": "a",
            "sessionId": SESSION,
            "message": {
                "id": "m",
                "role": "assistant",
                "model": "m" * 4_096,
                "content": [{"type": "tool_use", "id": "t" * 4_096, "name": "n" * 4_096, "input": {}}],
            },
        },
        line("c", [{"type": "tool_result", "tool_use_id": "t" * 4_096, "content": "ok"}], parentUuid="b"),
    ],
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_lines_are_imported_or_named(store: Store, tmp_path: Path, kind: str) -> None:
    """No error comes through, what is stored is sound, and a second import adds nothing."""
    file = saved(tmp_path, *HOSTILE[kind])

    report = import_sessions(store, file)
    again = import_sessions(store, file)

    assert report.messages + sum(len(each.losses) for each in report.sessions) >= len(HOSTILE[kind])
    assert (again.messages, sound(store)) == (0, [])


def test_prefixes_of_ids_do_not_leak(store: Store, tmp_path: Path) -> None:
    """Sessions whose ids begin alike are threads of their own, each with its own messages."""
    for name in ("a", "a/agent-b", "a%", "a_"):
        said = line("u1", f"I am {name}.") | {"sessionId": name}
        import_sessions(store, saved(tmp_path, said))

    told = {thread.id: [entry.text for entry in thread.transcript()] for thread in store.threads()}
    assert told == {f"claude-code:{name}": [f"I am {name}."] for name in ("a", "a/agent-b", "a%", "a_")}


def test_a_very_deep_line_is_no_error(store: Store, tmp_path: Path) -> None:
    """JSON that is nested deeper than Python reads is a line that cannot be read."""
    file = saved(tmp_path, line("a", "x"))
    file.write_bytes(file.read_bytes() + b'{"a":' * 100_000 + b"\n")

    (session,) = import_sessions(store, file).sessions

    assert [loss.where for loss in session.losses] == ["line 2"]


def test_links_are_not_followed(store: Store, tmp_path: Path) -> None:
    """A link in a directory is passed over."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "sessions").mkdir()
    target = saved(tmp_path / "elsewhere", line("a", "secret"))
    (tmp_path / "sessions" / "link.jsonl").symlink_to(target)

    with pytest.raises(Invalid):
        import_sessions(store, tmp_path / "sessions")


def test_random_bytes_in_a_session_lead_to_typed_errors_only(tmp_path: Path) -> None:
    """Whole stretches are overwritten, doubled or lost."""
    chance = random.Random(SEED)
    (claude, *_) = write_project(tmp_path / "claude", "2.1.90", SEED)
    for content in (claude.read_bytes(), write_rollout(tmp_path / "codex", "0.98.0", SEED).read_bytes()):
        for _ in range(sized(4, 400)):
            damaged = bytearray(content)
            start = chance.randrange(len(damaged))
            end = min(len(damaged), start + chance.randrange(1, 400))
            damaged[start:end] = chance.choice((b"", chance.randbytes(end - start), damaged[start:end] * 2))
            file = tmp_path / "session.jsonl"
            file.write_bytes(bytes(damaged))
            with perdure.open("memory:") as store:
                with suppress(Invalid):  # so much is lost that it is no session any more
                    import_sessions(store, file)
                assert sound(store) == []


def test_progress_is_told_source_by_source(store: Store, tmp_path: Path) -> None:
    """With what was found and what is done."""
    write_project(tmp_path, "2.0.14", SEED)
    told: list[tuple[int, int]] = []

    import_sessions(store, tmp_path, progress=lambda at: told.append((at.done, at.sources)))

    assert told == [(1, 2), (2, 2)]


def test_a_session_without_a_message_makes_no_thread(store: Store, tmp_path: Path) -> None:
    """It is reported."""
    writer = ClaudeWriter("1.0.30", SEED)
    writer.aside("summary", summary="Shop", leafUuid="x")
    (tmp_path / "s.jsonl").write_bytes(writer.bytes())

    (session,) = import_sessions(store, tmp_path).sessions

    assert (session.thread, session.unmapped, list(store.threads())) == (None, {"summary": 1}, [])


@pytest.mark.parametrize("kind", ["reasoning", "function_call", "function_call_output", "message"])
def test_an_envelope_with_the_type_of_an_item_is_counted(store: Store, tmp_path: Path, kind: str) -> None:
    """Its payload has no type, so that it is no item; the rest of the session is imported."""
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}
    start = {"type": "session_meta", "payload": {"id": "s1"}}
    file = saved(
        tmp_path, start, {"type": "response_item", "payload": said}, {"type": kind, "payload": {"id": "x"}}
    )

    (report,) = import_sessions(store, file).sessions

    assert report.unmapped[f"{kind} with a payload"] == 1
    assert [entry.text for entry in store.thread(report.thread or "").transcript()] == ["hello"]


@pytest.mark.parametrize(("token", "losses"), [("gAAAA" + "x" * 40, 0), ("c2VjcmV0", 1), ([1], 1), (True, 1)])
def test_reasoning_that_openai_did_not_encrypt_is_listed(
    store: Store, tmp_path: Path, token: object, losses: int
) -> None:
    """The vendor would refuse the whole conversation; the original keeps it, and every export is valid."""
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}, {}]}
    thought = {"type": "reasoning", "summary": [], "encrypted_content": token}
    answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}
    items = [{"type": "response_item", "payload": each} for each in (said, thought, answer)]
    file = saved(tmp_path, {"type": "session_meta", "payload": {"id": "s1"}}, *items)

    (report,) = import_sessions(store, file).sessions

    assert [each.what for each in report.losses] == ["content block", *["encrypted_content"] * losses]
    assert sound(store) == []


@pytest.mark.parametrize("text", ["cut \ud83d", "\ude00 cut", "whole \U0001f600"])
def test_half_of_a_character_is_replaced_and_listed(store: Store, tmp_path: Path, text: str) -> None:
    """Tools cut long outputs between the halves of a character; such a session is imported, and the original has its bytes."""
    file = saved(tmp_path, line("u1", text))

    (report,) = import_sessions(store, file).sessions

    shown = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert [entry.text for entry in store.thread(report.thread or "").transcript()] == [shown]
    assert [each.kind for each in report.losses] == ([] if shown == text else ["repaired"])
    assert import_sessions(store, file).messages == 0


def test_an_item_that_openai_would_refuse_is_mended_and_listed(store: Store, tmp_path: Path) -> None:
    """Ids of another kind, or twice, are left out; texts have the type of their role."""
    said = {"type": "message", "role": "user", "content": [{"type": "output_text", "text": "a"}], "id": "7"}
    answer = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "input_text", "text": "b"}],
        "id": "msg_1",
    }
    items = [{"type": "response_item", "payload": each} for each in (said, answer, said, answer)]
    file = saved(tmp_path, {"type": "session_meta", "payload": {"id": "s1"}}, *items)

    (report,) = import_sessions(store, file).sessions

    assert [each.what for each in report.losses] == ["id", "id", "id"]
    assert [entry.text for entry in store.thread(report.thread or "").transcript()] == ["a", "b", "a", "b"]
    assert sound(store) == []


@pytest.mark.parametrize("kind", ["image", "document"])
def test_a_file_without_bytes_is_listed(store: Store, tmp_path: Path, kind: str) -> None:
    """No vendor accepts it, in a message or in a result; the words beside it are imported."""
    empty = {"type": kind, "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    file = saved(tmp_path, line("u1", [{"type": "text", "text": "see"}, empty]))

    (report,) = import_sessions(store, file).sessions

    assert [each.what for each in report.losses] == ["file"]
    assert [entry.text for entry in store.thread(report.thread or "").transcript()] == ["see"]
    assert sound(store) == []


BYTES = {
    "no UTF-8": b"caf\xe9",
    "half of a character": b"caf\xed\xa0\xbd",
}


@pytest.mark.parametrize("kind", BYTES)
def test_a_byte_that_is_no_text_is_replaced_and_listed(store: Store, tmp_path: Path, kind: str) -> None:
    """The rest of the line is read, in each import from then on; control: another line has no loss."""
    file = saved(tmp_path, line("u1", "Here?"), line("u2", "And there?"))
    file.write_bytes(file.read_bytes().replace(b"Here", BYTES[kind]))

    (first,) = import_sessions(store, file).sessions
    (again,) = import_sessions(store, file).sessions

    assert [(each.kind, each.where) for each in first.losses] == [("repaired", "line 1")]
    assert (first.messages, again.messages, again.losses) == (2, 0, first.losses)
    said = [entry.text for entry in store.thread(f"claude-code:{SESSION}").transcript()]
    assert (said[0].startswith("caf\ufffd"), said[0].endswith("?"), said[1]) == (True, True, "And there?")


def test_an_import_that_is_refused_leaves_no_empty_thread(tmp_path: Path) -> None:
    """Of a picture that is larger than the store takes; control: a thread that was there before stays."""
    data = base64.b64encode(os.urandom(2_000)).decode()
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    file = saved(tmp_path, line("u1", [picture]))

    with perdure.open("memory:", limits=Limits(artifact_bytes_max=1_000)) as store:
        with pytest.raises(Invalid):
            import_sessions(store, file)
        left = [thread.id for thread in store.threads()]
        store.thread(f"claude-code:{SESSION}", agent="claude-code")
        with pytest.raises(Invalid):
            import_sessions(store, file)

        assert (left, [thread.id for thread in store.threads()]) == ([], [f"claude-code:{SESSION}"])
