"""Importers that are broken on purpose: the check that the importers have to pass finds what is wrong with each of them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from perdure.integrations.importers import claude_code, codex, langgraph, openai_agents
from perdure.integrations.importers import write as writing
from perdure.integrations.importers.exports import chatgpt
from tests.crash.campaign import SEED
from tests.integrations.importers import (
    claude_sessions,
    codex_sessions,
    test_chatgpt,
    test_langgraph,
    test_openai_agents,
)
from tests.integrations.importers.counts import Counts, import_faults

Patch = pytest.MonkeyPatch
Tree, Rollout, Checkpoints = (
    claude_code._SessionTree,
    codex._RolloutReading,
    langgraph._CheckpointReading,
)


def claude(folder: Path) -> tuple[Path, Counts]:
    """A session of Claude Code with branches, a compaction and a sub-agent."""
    files = claude_sessions.write_project(folder, "2.1.90", SEED)
    return folder, sum((claude_sessions.counted(file.read_bytes()) for file in files), Counts())


def rollout(folder: Path) -> tuple[Path, Counts]:
    """A session of the Codex CLI with events, a compaction and turns that were taken back."""
    file = codex_sessions.write_rollout(folder, "0.98.0", SEED)
    return file, codex_sessions.counted(file.read_bytes())


def graph(folder: Path) -> tuple[Path, Counts]:
    """A database of LangGraph in which the newest checkpoint is on a branch."""
    asked, call, found, said = (
        test_langgraph.ASKED,
        test_langgraph.CALL,
        test_langgraph.FOUND,
        test_langgraph.SAID,
    )
    full = ("2", "1", {"messages": [asked, call, found, said]})
    branch = ("3", "1", {"messages": [asked, test_langgraph.message("ai", "Otherwise.", id="m7")]})
    file = test_langgraph.database(folder, ("1", None, {"messages": [asked]}), full, branch)
    return file, Counts(inputs=1, replies=3, calls=1, results=1)


def items(folder: Path) -> tuple[Path, Counts]:
    """A session of the OpenAI Agents SDK."""
    return test_openai_agents.database(folder, test_openai_agents.ITEMS), test_openai_agents.COUNTS


def export(folder: Path) -> tuple[Path, Counts]:
    """An export of ChatGPT with a branch and a call."""
    return test_chatgpt.saved(folder, test_chatgpt.conversation()), test_chatgpt.COUNTS


def drop_other_ends(patch: Patch) -> None:
    """Only the line to the current node is read."""
    paths = chatgpt._Tree.paths
    patch.setattr(chatgpt._Tree, "paths", lambda self, current: paths(self, current)[:1])


def drop_tools(patch: Patch) -> None:
    """Messages of tools are left out."""
    patch.setattr(chatgpt._Tree, "_result", lambda self, id, blocks: None)


def count_events(patch: Patch) -> None:
    """Events are items, too."""
    event = Rollout._event
    patch.setattr(
        Rollout, "_event", lambda self, line, payload, **_: event(self, line, payload, has_items=False)
    )


def keep_rolled_back(patch: Patch) -> None:
    """Turns that the user took back stay."""
    patch.setattr(Rollout, "_roll_back", lambda self, turns: None)


def take_back_fewer(patch: Patch) -> None:
    """One turn fewer than the user took back is undone."""
    roll_back = Rollout._roll_back
    patch.setattr(Rollout, "_roll_back", lambda self, turns: roll_back(self, turns - 1))


def drop_branches(patch: Patch) -> None:
    """Only the newest end of the tree is read."""
    paths = Tree.paths
    patch.setattr(Tree, "paths", lambda self: paths(self)[:1])


def split_replies(patch: Patch) -> None:
    """Each line is a message."""
    place = Tree._place

    def placed(self: Any, value: Any) -> Any:
        self._replies.clear()
        return place(self, value)

    patch.setattr(Tree, "_place", placed)


def keep_summaries(patch: Patch) -> None:
    """The summary of a compaction is the user's words."""
    kind = claude_code._kind
    patch.setattr(claude_code, "_kind", lambda value: kind({**value, "isCompactSummary": False}))


def keep_notes(patch: Patch) -> None:
    """What the tool wrote itself is the user's words."""
    kind = claude_code._kind
    patch.setattr(claude_code, "_kind", lambda value: kind({**value, "isMeta": False}))


def drop_agents(patch: Patch) -> None:
    """Lines of sub-agents are left out."""
    patch.setattr(
        claude_code, "_child", lambda session, path, key, lines, call: claude_code._session(key, path, [])
    )


def drop_other_lists(patch: Patch) -> None:
    """Only the list of the newest checkpoint is read."""
    paths = Checkpoints._paths
    patch.setattr(Checkpoints, "_paths", lambda self, newest: paths(self, newest)[:1])


def drop_results(patch: Patch) -> None:
    """Outputs are left out."""
    read_item = openai_agents.read_item
    patch.setattr(
        openai_agents,
        "read_item",
        lambda item, **facts: None if "output" in item else read_item(item, **facts),
    )


def name_by_import(*modules: Any) -> Callable[[Patch], None]:
    """The names of parts are other ones in each import."""
    numbers = count()

    def broken(patch: Patch) -> None:
        for module in modules:
            patch.setattr(module, "moment_name", lambda format, id: f"{format}:{next(numbers)}")
        patch.setattr(writing.ForeignSession, "digest", property(lambda self: f"{next(numbers)}"))

    return broken


BROKEN: dict[str, tuple[Callable[[Path], tuple[Path, Counts]], Callable[[Patch], None]]] = {
    "events of Codex are counted": (rollout, count_events),
    "turns that were taken back are kept": (rollout, keep_rolled_back),
    "too few turns are taken back": (rollout, take_back_fewer),
    "rows of Codex have other names": (rollout, name_by_import(codex)),
    "a branch of Claude Code is dropped": (claude, drop_branches),
    "a reply is several messages": (claude, split_replies),
    "a summary is the user's": (claude, keep_summaries),
    "a note is the user's": (claude, keep_notes),
    "sub-agents are dropped": (claude, drop_agents),
    "lines of Claude Code have other names": (claude, name_by_import(claude_code)),
    "a branch of LangGraph is dropped": (graph, drop_other_lists),
    "messages of LangGraph have other names": (graph, name_by_import(langgraph)),
    "a branch of ChatGPT is dropped": (export, drop_other_ends),
    "results of ChatGPT are dropped": (export, drop_tools),
    "nodes of ChatGPT have other names": (export, name_by_import(chatgpt)),
    "results of OpenAI are dropped": (items, drop_results),
    "rows of OpenAI have other names": (items, name_by_import(openai_agents)),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_an_importer_that_is_broken_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Control: the same files pass with the importer as it is."""
    made, broken = BROKEN[kind]
    place, wanted = made(tmp_path)
    assert import_faults(place, wanted) == []

    broken(monkeypatch)

    assert import_faults(place, wanted) != []
