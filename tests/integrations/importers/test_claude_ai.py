"""claude.ai's export of data becomes threads: its trees, its calls inside messages, and what it has of files."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from perdure import Store, errors
from perdure.integrations.importers import import_sessions
from perdure.model.message import File
from tests.integrations.importers.counts import Counts, import_faults, in_store, sound

ROOT = "00000000-0000-4000-8000-000000000000"
COUNTS = Counts(inputs=3, replies=4, calls=2, results=2)


def said(id: str, parent: str | None, sender: str, *blocks: Any, **more: Any) -> dict[str, Any]:
    """A message; one without a parent is as early exports have it."""
    content = [{"type": "text", "text": each} if isinstance(each, str) else each for each in blocks]
    message = {
        "uuid": id,
        "text": "```\nThis block is not supported on your current device yet.\n```",
        "content": content,
        "sender": sender,
        "created_at": f"2026-03-29T07:06:{len(id):02}.552627Z",
        "attachments": [],
        "files": [],
    }
    return message | ({} if parent is None else {"parent_message_uuid": parent}) | more


def use(id: str | None, **input: Any) -> dict[str, Any]:
    """A call inside a message."""
    return {"type": "tool_use", "id": id, "name": "web_search", "input": input, "message": "Searching"}


def result(id: str | None, *content: Any, **more: Any) -> dict[str, Any]:
    """A result inside a message."""
    return {"type": "tool_result", "tool_use_id": id, "name": "web_search", "content": list(content), **more}


RAIN = {"type": "text", "text": "rain", "uuid": "x"}
THOUGHT = {"type": "thinking", "thinking": "I look it up.", "summaries": [], "cut_off": False}


def conversation(id: str = "c-1", *more: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A conversation with calls, a question that was edited, and blocks that no transcript has."""
    return {
        "uuid": id,
        "name": "Weather",
        "summary": "",
        "created_at": "2026-03-29T07:06:34.084721Z",
        "account": {"uuid": "a"},
        "chat_messages": [
            said("u1", ROOT, "human", "Oslo?"),
            said(
                "a1",
                "u1",
                "assistant",
                THOUGHT,
                use("toolu_1", q="Oslo"),
                result("toolu_1", RAIN),
                "It rains.",
                use(None, q="tomorrow"),
                result(None, RAIN, is_error=True),
                {"type": "token_budget"},
                "Tomorrow, too.",
            ),
            said("u2", "a1", "human", "And Bergen?"),
            said("u30", "a1", "human", "And Voss?"),
            said("a300", "u30", "assistant", "Sun."),
            *more,
        ],
        **fields,
    }


def saved(path: Path, *conversations: Any) -> Path:
    """Save an export."""
    (path / "conversations.json").write_text(json.dumps(conversations), encoding="utf-8")
    return path / "conversations.json"


def texts(store: Store, timeline: str = "main") -> list[str]:
    """The words of a timeline."""
    return [entry.text for entry in store.thread("claude-ai:c-1").on(timeline).transcript() if entry.text]


def test_a_conversation_is_a_thread_with_its_branches(store: Store, tmp_path: Path) -> None:
    """The line to the newest message is main; calls inside a message have their results after what was said before."""
    (session,) = import_sessions(store, saved(tmp_path, conversation())).sessions

    assert (session.thread, session.timelines) == ("claude-ai:c-1", ("main", "claude-ai/u2"))
    assert texts(store) == ["Oslo?", "It rains.", "Tomorrow, too.", "And Voss?", "Sun."]
    assert texts(store, "claude-ai/u2")[-1] == "And Bergen?"
    assert session.unmapped == {"token_budget of the assistant": 1}
    assert (in_store(store), sound(store)) == (COUNTS, [])
    calls = store.thread("claude-ai:c-1").calls()
    assert [(call.tool, call.state) for call in calls] == [
        ("web_search", "succeeded"),
        ("web_search", "failed"),
    ]
    assert store.thread("claude-ai:c-1").get("/import/session")["facts"]["title"] == "Weather"


def test_the_message_that_is_current_decides_about_main(store: Store, tmp_path: Path) -> None:
    """Where it is named; it is else the newest one."""
    whole = conversation(current_leaf_message_uuid="u2")

    import_sessions(store, saved(tmp_path, whole))

    assert texts(store)[-1] == "And Bergen?"


def test_an_export_without_parents_is_a_list(store: Store, tmp_path: Path) -> None:
    """As early ones are, with the text of a message alone."""
    messages = [{"uuid": id, "sender": who, "text": id} for id, who in (("Hi", "human"), ("Ho", "assistant"))]

    import_sessions(store, saved(tmp_path, {"uuid": "c-1", "name": "", "chat_messages": messages}))

    assert (texts(store), len(store.thread("claude-ai:c-1").timelines())) == (["Hi", "Ho"], 1)


def test_texts_of_documents_are_files_and_pasted_words_are_the_users(store: Store, tmp_path: Path) -> None:
    """A picture, and a document without its text, are losses by name."""
    attached = [
        {"file_name": "a.pdf", "file_type": "pdf", "extracted_content": "Page one."},
        {"file_name": "", "file_type": "txt", "extracted_content": "A long paste."},
        {"file_name": "b.xlsx", "extracted_content": ""},
    ]
    message = said("u1", ROOT, "human", text="", attachments=attached, files=[{"file_name": "p.jpg"}])

    (session,) = import_sessions(store, saved(tmp_path, {"uuid": "c-1", "chat_messages": [message]})).sessions

    thread = store.thread("claude-ai:c-1")
    (entry,) = thread.transcript()
    (file,) = [block for block in entry.message.content if isinstance(block, File)]
    assert (entry.text, file.mime_type) == ("A long paste.", "text/plain")
    assert b"".join(thread.artifacts.get(file.uri)) == b"Page one."
    assert [(loss.where, loss.what) for loss in session.losses] == [
        ("message u1", "b.xlsx"),
        ("message u1", "p.jpg"),
    ]
    assert sound(store) == []


def test_an_archive_of_the_export_is_imported_and_grows(store: Store, tmp_path: Path) -> None:
    """With its other documents; a later one adds the rest."""
    place = tmp_path / "export.zip"
    for more in ((), (said("u4000", "a300", "human", "Thanks"),)):
        with zipfile.ZipFile(place, "w") as archive:
            archive.writestr("conversations.json", json.dumps([conversation("c-1", *more)]))
            archive.writestr("users.json", "[]")
        report = import_sessions(store, place)

    assert ([each.messages for each in report.sessions], report.refused) == ([1], ())
    assert (texts(store)[-1], report.sessions[0].source) == ("Thanks", str(place))


def test_counts_are_those_of_the_file(tmp_path: Path) -> None:
    """And a second import adds nothing."""
    assert import_faults(saved(tmp_path, conversation()), COUNTS) == []


@pytest.mark.parametrize(
    ("odd", "named"),
    [
        ({"uuid": "cv2", "chat_messages": "broken"}, "conversation 2 ('cv2')"),
        ({"name": "Hats"}, "conversation 2 ('Hats')"),
        (5, "conversation 2"),
        ({"chat_messages": [{"sender": "human", "text": "x"}]}, "has no uuid"),
    ],
)
def test_a_conversation_that_cannot_be_read_is_refused_by_name(
    store: Store, tmp_path: Path, odd: Any, named: str
) -> None:
    """The others of the file are imported."""
    found = import_sessions(store, saved(tmp_path, conversation("c-1"), odd, conversation("c-2")))

    assert [each.thread for each in found.sessions] == ["claude-ai:c-1", "claude-ai:c-2"]
    ((code, why),) = [(each.code, each.why) for each in found.refused]
    assert (code, named in why) == ("import_unreadable", True)


@pytest.mark.parametrize("text", ['[{"chat_messages": 1}]', '[{"chat_messages": [{"role": "user"}]}]', "[1]"])
def test_a_file_that_only_looks_like_it_is_no_export(store: Store, tmp_path: Path, text: str) -> None:
    """Control: nothing is made of it."""
    (tmp_path / "conversations.json").write_text(text)

    with pytest.raises(errors.Invalid):
        import_sessions(store, tmp_path / "conversations.json")

    assert list(store.threads()) == []


def test_a_tree_that_leads_round_is_read_to_its_end(tmp_path: Path) -> None:
    """A message that is its own descendant does not stop the import."""
    odd = conversation()
    odd["chat_messages"][0]["parent_message_uuid"] = "a300"

    assert import_faults(saved(tmp_path, odd), COUNTS) == []
