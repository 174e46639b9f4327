"""ChatGPT's export of data becomes threads: the current line is main, every other branch a timeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure import Store, errors
from perdure.integrations.importers import import_sessions
from tests.integrations.importers.counts import Counts, import_faults, in_store, sound

COUNTS = Counts(inputs=3, replies=4, calls=1, results=1)


def node(
    id: str,
    parent: str | None,
    role: str | None = None,
    *words: Any,
    to: str = "all",
    kind: str = "text",
    **more: Any,
) -> tuple[str, dict[str, Any]]:
    """A node of the tree, with its message."""
    content: dict[str, Any] = {"content_type": kind, "parts": list(words)}
    if kind in ("code", "execution_output"):
        content = {"content_type": kind, "text": words[0]}
    if kind == "thoughts":
        content = {"content_type": kind, "thoughts": [{"summary": "Weather", "content": words[0]}]}
    message = {
        "id": id,
        "author": {"role": role, "name": None, "metadata": {}},
        "create_time": 1_700_000_000.5,
        "content": content,
        "recipient": to,
        "metadata": {"model_slug": "gpt-5.6", **more} if role == "assistant" else more,
    }
    return id, {"id": id, "message": None if role is None else message, "parent": parent, "children": []}


def conversation(id: str = "c-1", current: str = "a3", *more: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """A conversation with a call, a question that was edited, and what ChatGPT wrote itself."""
    nodes = (
        node("root", None),
        node("s", "root", "system", "", is_visually_hidden_from_conversation=True),
        node("u1", "s", "user", "Oslo?"),
        node("t1", "u1", "assistant", "I look it up.", kind="thoughts"),
        node("c1", "t1", "assistant", "weather('Oslo')", to="python", kind="code"),
        node("r1", "c1", "tool", "rain", kind="execution_output"),
        node("a1", "r1", "assistant", "It rains."),
        node("u2", "a1", "user", "And Bergen?"),
        node("u3", "a1", "user", "And Voss?", {"content_type": "image_asset_pointer", "asset_pointer": "x"}),
        node("a3", "u3", "assistant", "Sun."),
        *more,
    )
    return {
        "title": "Weather",
        "create_time": 1_700_000_000.0,
        "mapping": dict(nodes),
        "current_node": current,
        "conversation_id": id,
    }


def saved(path: Path, *conversations: dict[str, Any]) -> Path:
    """Save an export."""
    (path / "conversations.json").write_text(json.dumps(conversations), encoding="utf-8")
    return path / "conversations.json"


def texts(store: Store, timeline: str = "main") -> list[str]:
    """The words of a timeline."""
    return [entry.text for entry in store.thread("chatgpt:c-1").on(timeline).transcript() if entry.text]


def test_a_conversation_is_a_thread_with_its_branches(store: Store, tmp_path: Path) -> None:
    """The line to the current node is main; calls have their results; what is left out is counted or a loss."""
    (session,) = import_sessions(store, saved(tmp_path, conversation())).sessions

    assert (session.thread, session.timelines) == ("chatgpt:c-1", ("main", "chatgpt/u2"))
    assert texts(store) == ["Oslo?", "It rains.", "And Voss?", "Sun."]
    assert texts(store, "chatgpt/u2")[-1] == "And Bergen?"
    assert session.unmapped == {"hidden message of the system": 1}
    assert [(loss.where, loss.what) for loss in session.losses] == [("node u3", "image_asset_pointer")]
    assert in_store(store) == COUNTS
    assert sound(store) == []
    (call,) = store.thread("chatgpt:c-1").calls()
    assert (call.tool, call.state) == ("python", "succeeded")
    asked = [each for entry in store.thread("chatgpt:c-1").transcript() for each in entry.message.tool_calls]
    assert [json.loads(each.args) for each in asked] == [{"input": "weather('Oslo')"}]
    assert {entry.model for entry in store.thread("chatgpt:c-1").transcript()} == {None, "gpt-5.6"}


def test_a_node_that_is_missing_is_a_hole_that_the_report_names(store: Store, tmp_path: Path) -> None:
    """Main begins after it, and what is before it is a timeline; a whole tree, the control above, has no such loss."""
    cut = conversation()
    del cut["mapping"]["a1"]

    (session,) = import_sessions(store, saved(tmp_path, cut)).sessions

    assert texts(store) == ["And Voss?", "Sun."]
    assert [loss.where for loss in session.losses if loss.what == "messages before"] == ["node u2", "node u3"]


def test_an_export_is_imported_once_and_its_rest_when_it_has_grown(store: Store, tmp_path: Path) -> None:
    """A new export has all conversations again; one that is new is a thread of its own."""
    import_sessions(store, saved(tmp_path, conversation()))
    again = import_sessions(store, saved(tmp_path, conversation()))
    more = conversation("c-1", "u4", node("u4", "a3", "user", "Thanks"))
    grown = import_sessions(store, saved(tmp_path, more, conversation("c-2")))

    assert (again.messages, [each.messages for each in grown.sessions]) == (0, [1, 8])
    assert [each.edited for each in grown.sessions] == [(), ()]
    assert texts(store)[-1] == "Thanks"


def test_a_message_that_was_edited_in_an_export_is_named(store: Store, tmp_path: Path) -> None:
    """By its node; the thread keeps what was imported, and new messages are added."""
    import_sessions(store, saved(tmp_path, conversation()))
    more = node("u4", "a3", "user", "Thanks")
    edited = conversation("c-1", "u4", node("a1", "r1", "assistant", "It snows."), more)

    (session,) = import_sessions(store, saved(tmp_path, edited)).sessions

    assert (session.edited, session.messages) == (("node a1",), 1)
    assert ("It rains." in texts(store), "It snows." in texts(store)) == (True, False)


def test_each_thread_keeps_its_own_conversation_as_the_original(store: Store, tmp_path: Path) -> None:
    """Not the whole file, which may have thousands of them."""
    import_sessions(store, saved(tmp_path, conversation("c-1"), conversation("c-2")))

    thread = store.thread("chatgpt:c-1")
    (kept,) = thread.get("/import/session")["originals"]
    assert json.loads(b"".join(thread.artifacts.get(kept["artifact"])))["conversation_id"] == "c-1"


@pytest.mark.parametrize(
    "text", ['[{"mapping": 1, "author": 2}]', '[{"mapping": {}', '["mapping", "author"]']
)
def test_a_file_that_only_looks_like_it_is_no_export(store: Store, tmp_path: Path, text: str) -> None:
    """Control: nothing is made of it."""
    (tmp_path / "conversations.json").write_text(text)

    with pytest.raises(errors.Invalid):
        import_sessions(store, tmp_path / "conversations.json")

    assert list(store.threads()) == []


@pytest.mark.parametrize(
    ("odd", "named"),
    [
        ({"id": "cv2", "mapping": "broken"}, "conversation 2 ('cv2')"),
        ({"title": "Hats"}, "conversation 2 ('Hats')"),
        (5, "conversation 2"),
        ({"mapping": {}}, "has no id"),
        ({"id": "cv3", "mapping": {"u": {"message": 5}, "v": 7}}, "('cv3')"),
        ({"id": "cv4", "mapping": {"u": {"message": {"content": "x"}}}}, "('cv4')"),
    ],
)
def test_a_conversation_that_cannot_be_read_is_refused_by_name(
    store: Store, tmp_path: Path, odd: Any, named: str
) -> None:
    """The others of the file are imported, those after it too."""
    found = import_sessions(store, saved(tmp_path, conversation("c-1"), odd, conversation("c-2")))

    assert [each.thread for each in found.sessions] == ["chatgpt:c-1", "chatgpt:c-2"]
    ((code, why),) = [(each.code, each.why) for each in found.refused]
    assert (code, named in why) == ("import_unreadable", True)


def test_control_an_export_without_odd_conversations_refuses_none(store: Store, tmp_path: Path) -> None:
    """A conversation in which nothing was said is none of them, nor is a node without a message."""
    silent = {"id": "cv5", "mapping": dict([node("root", None)])}

    found = import_sessions(store, saved(tmp_path, conversation("c-1"), silent))

    assert (len(found.sessions), found.refused) == (2, ())


def test_a_message_that_cannot_be_read_is_a_loss_with_its_node(store: Store, tmp_path: Path) -> None:
    """The messages around it are imported."""
    odd = conversation("c-1", "a4", node("u4", "a3", "user", "?"), node("a4", "u4", "assistant", "Yes."))
    odd["mapping"]["u4"]["message"]["content"] = "x"

    (session,) = import_sessions(store, saved(tmp_path, odd)).sessions

    assert ("node u4", "message") in [(loss.where, loss.what) for loss in session.losses]
    assert texts(store)[-2:] == ["Sun.", "Yes."]


def test_a_tree_that_leads_round_is_read_to_its_end(store: Store, tmp_path: Path) -> None:
    """A parent that is its own child does not stop the import."""
    odd = conversation()
    odd["mapping"]["root"]["parent"] = "a3"

    assert import_faults(saved(tmp_path, odd), COUNTS) == []


def test_results_that_lead_round_are_counted(store: Store, tmp_path: Path) -> None:
    """No call is above such a result, and none is looked for twice; the rest of the file is imported."""
    alone = conversation(
        "c-2", "r2", node("x", "x"), node("r2", "x", "tool", "rain", kind="execution_output")
    )
    pair = conversation(
        "c-3",
        "r3",
        node("r3", "r4", "tool", "rain", kind="execution_output"),
        node("r4", "r3", "tool", "sun", kind="execution_output"),
    )

    report = import_sessions(store, saved(tmp_path, conversation(), alone, pair))

    assert not report.refused
    counted = [each.unmapped.get("message of a tool that answers no call", 0) for each in report.sessions]
    assert counted == [0, 1, 2]
