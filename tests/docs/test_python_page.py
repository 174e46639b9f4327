"""The Python reference is what the code says, and no public name is missing from it."""

from __future__ import annotations

import ast
import inspect
import re

import pytest

import perdure
from perdure import aio
from perdure.store import agents, artifacts, change, runs, store, thread, timeline, view
from tests.docs.python_page import MARK, PAGE, generated, rendered
from tests.docs.tables import codes

TEXT = PAGE.read_text(encoding="utf-8")

# What a program holds, and what it is called on the page.
HELD: dict[type, str] = {
    store.Store: "store",
    view.View: "view",
    timeline.Line: "thread",
    runs.Runs: "thread",
    runs.Switching: "thread",
    thread.Thread: "thread",
    change.Change: "change",
    change.Edits: "change",
    agents.AgentMap: "agent_map",
    artifacts.Artifacts: "artifacts",
    agents.Definitions: "definitions",
}
TWINS: dict[type, type] = {
    store.Store: aio.Store,
    view.View: aio.View,
    thread.Thread: aio.Thread,
    change.Change: aio.Change,
    change.AgentChange: aio.AgentChange,
    agents.AgentMap: aio.AgentMap,
    artifacts.Artifacts: aio.Artifacts,
    agents.Definitions: aio.Definitions,
}


def attributes(kind: type) -> set[str]:
    """The public attributes that the class sets on its instances."""
    tree = ast.parse(inspect.getsource(inspect.getmodule(kind) or kind))
    body = next(each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == kind.__name__)
    stored = [
        node
        for node in ast.walk(body)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node.value) == "self"
    ]
    return {node.attr for node in stored if not node.attr.startswith("_")}


def public(kind: type) -> set[str]:
    """Every public name of a class and of its instances."""
    inherited = [each for each in kind.__mro__ if each.__module__.startswith("perdure.")]
    return {name for name in dir(kind) if not name.startswith("_")}.union(*map(attributes, inherited))


def test_the_page_is_what_the_code_says() -> None:
    """If it is not, the command below writes it again."""
    assert rendered(TEXT) == TEXT, "run `python -m tests.docs.python_page`"


@pytest.mark.parametrize("kind", HELD, ids=lambda kind: kind.__name__)
def test_every_public_name_is_on_the_page(kind: type) -> None:
    """Methods and properties by a section, attributes by being named."""
    own = {name for name in vars(kind) if not name.startswith("_")} | attributes(kind)
    documented = set(codes(TEXT))

    assert {f"{HELD[kind]}.{name}" for name in own} - documented == set()


def test_every_public_name_of_an_agent_is_on_the_page() -> None:
    """Its fields, and what follows from them."""
    documented = {
        re.split(r"\W", code)[0] for code in codes(generated("perdure.runtime.agent.agent.Agent", None))
    }
    own = {*vars(perdure.Agent("planner")), *vars(perdure.Agent)}

    assert {name for name in own if not name.startswith("_")} <= documented


def test_every_export_is_on_the_page() -> None:
    """What `perdure` exports is described there."""
    words = {word for code in codes(TEXT) for word in code.replace("(", ".").split(".")}

    assert set(perdure.__all__) - words == set()


@pytest.mark.parametrize("kind", TWINS, ids=lambda kind: kind.__name__)
def test_the_awaitable_face_has_the_same_names(kind: type) -> None:
    """What the page says of one face holds for the other."""
    assert public(kind) - public(TWINS[kind]) == set()


def test_a_stale_part_would_be_found() -> None:
    """Control: a page from before a parameter was renamed is not what the code says."""
    stale = TEXT.replace("op_id", "operation", 1)

    assert stale != TEXT
    assert rendered(stale) == TEXT


def test_nothing_is_made_for_a_name_that_is_not_there() -> None:
    """Control: a mark for a class that is gone is an error, not an empty part."""
    assert MARK.search(TEXT)
    with pytest.raises(AttributeError):
        generated("perdure.store.thread.Thraed", "thread")
