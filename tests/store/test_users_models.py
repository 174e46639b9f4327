"""A user's file of models is known to a store that is opened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import perdure
from perdure.errors import Invalid
from tests.coded import raises


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's file, not written yet."""
    path = tmp_path / "mine.json"
    monkeypatch.setenv("PERDURE_MODELS", str(path))
    return path


def begun(store: perdure.Store) -> perdure.Thread:
    """A thread with one message."""
    thread = store.thread("t", agent="helper")
    with thread.change("ask") as change:
        change.say("user", "Hello")
    return thread


def test_a_model_of_the_file_is_rendered_for_without_its_provider(mine: Path) -> None:
    """As one of the shipped catalog is."""
    mine.write_text(json.dumps({"models": {"anthropic": {"claude-mine": {}}}}))

    with perdure.open("memory:") as store:
        thread = begun(store)
        assert thread.render("claude-mine").body["model"] == "claude-mine"
        assert "max_tokens" in thread.render("claude-mine").body
        assert thread.render("gpt-5.6").body["model"] == "gpt-5.6"
        with raises(Invalid, "backend_name_invalid", backend="claude-yours"):
            thread.render("claude-yours")


def test_the_file_is_read_when_it_is_needed(mine: Path) -> None:
    """Windows are found in it, so a request asks it; the whole conversation does not.  The error names the file."""
    mine.write_text("{")

    with perdure.open("memory:") as store:
        thread = begun(store)
        with raises(Invalid, "catalog_invalid", where=f"'{mine}'"):
            thread.render("gpt-5.6")
        with raises(Invalid, "catalog_invalid", where=f"'{mine}'"):
            thread.render("openai:gpt-5.6")
        assert thread.export("openai-responses", model="gpt-5.6").body["model"] == "gpt-5.6"
