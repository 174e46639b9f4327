"""A shell for the tests: types a command, in this process, and gives what it said and how it ended."""

from __future__ import annotations

import copy
import io
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App
from cyclopts.argument import ArgumentCollection

import perdure
from perdure import Store, Thread
from perdure.cli import main

__all__ = [
    "BEGAN",
    "PROTOCOLS",
    "WITHOUT_STORE",
    "Ended",
    "Shell",
    "commands",
    "describing_once",
    "fixed_clock",
    "fixed_ids",
    "opened",
    "shop",
]

# Commands that need no store, or make one.
WITHOUT_STORE = (
    "init",
    "chat",
    "demo",
    "import",
    "models ls",
    "models show",
    "checkpoints load",
    "providers ls",
    "restore",
    "serve",
    "providers check",
)

PROTOCOLS = ("mcp",)  # commands whose output is for the program that started them

BEGAN = 1_769_860_800_000_000  # 2026-01-31T12:00:00Z in µs


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The answer of a command that was asked for JSON."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The error of a command that was asked for JSON."""
        return json.loads(self.err)


class Shell:
    """Types commands in `directory`, where the store is `perdure.db`."""

    def __init__(
        self, directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.directory, self._capsys, self._monkeypatch = directory, capsys, monkeypatch
        self.store = directory / "perdure.db"

    def __call__(self, *words: str, stdin: bytes = b"") -> Ended:
        """Run one command, whatever its end."""
        self._capsys.readouterr()
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            main(words)
        printed = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, printed.out, printed.err)

    def ok(self, *words: str, stdin: bytes = b"") -> Ended:
        """Run one command that must succeed and complain of nothing."""
        ended = self(*words, stdin=stdin)
        assert (ended.code, ended.err) == (0, ""), ended
        return ended


def fixed_clock() -> Iterator[int]:
    """A second later each time it is looked at."""
    return count(BEGAN, 1_000_000)


def fixed_ids() -> Iterator[str]:
    """Ids that are the same in every run."""
    return (f"id-{number:04}" for number in count(1))


def opened(path: Path) -> Store:
    """A store with fixed clock and ids, so that its digests are the same in every run."""
    clock, ids = fixed_clock(), fixed_ids()
    return perdure.open(path, clock=lambda: next(clock), ids=lambda: next(ids))


def describing_once(
    describe: Callable[..., ArgumentCollection],
) -> Callable[..., ArgumentCollection]:
    """Return `describe`, a method of an app, so that it reads the signature of each command once and copies what it found.

    Reading it takes as long as most commands take to do their work, and hundreds of tests type the same few commands.
    """
    known: dict[object, ArgumentCollection] = {}

    def described(app: App, *, parse_docstring: bool = False, **others: Any) -> ArgumentCollection:
        what = app.default_command, parse_docstring
        if others or app.default_command is None:
            return describe(app, parse_docstring=parse_docstring, **others)
        if what not in known:
            known[what] = describe(app, parse_docstring=parse_docstring)
        return _copied(known[what])

    return described


def _copied(found: ArgumentCollection) -> ArgumentCollection:
    """Return arguments that have been given nothing yet."""
    fresh = {id(each): copy.copy(each) for each in found}
    for each in fresh.values():
        each.tokens = []
        each.children = ArgumentCollection(fresh[id(child)] for child in each.children)
    return ArgumentCollection(fresh.values())


def shop(path: Path) -> None:
    """Make a store with a shopping list: three turns on main, and a fork at the second with bread."""
    path.write_bytes(_shop())


@cache
def _shop() -> bytes:
    """The file of that store, whose ids and digests are the same each time."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "perdure.db"
        _make_shop(path)
        return path.read_bytes()


def _make_shop(path: Path) -> None:
    with opened(path) as store:
        thread = store.thread("shopping", agent="helper", owner="ann")
        for item in ("milk", "eggs", "carrots"):
            _turn(thread, item)
        what_if = thread.fork("what-if", at="turn:2")
        _turn(what_if, "bread")
        with thread.change("remember") as change:
            change.put("/notes/a.txt", b"plain words", media_type="text/plain")
            change.agent.put("/prefs.json", {"shop": "market"})


def _turn(thread: Thread, item: str) -> None:
    with thread.change(f"add {item}") as change:
        change.say("user", f"Please put {item} on the list.", id=f"ask-{item}-{thread.timeline}")
        items = [*change.get("/todos.json", default=[]), item]
        change.put("/todos.json", items)
        change.put("/count.json", len(items))
        change.say("assistant", f"Done, {item} is on it.", provider="openai", model="gpt-5.6")


def commands() -> dict[str, list[str]]:
    """Every command, with words that would make it work on the store of `shop`."""
    return {
        "threads ls": [],
        "threads show": ["shopping"],
        "threads begin": ["another", "--agent", "helper"],
        "threads log": ["shopping"],
        "threads turns": ["shopping"],
        "threads search": ["carrots"],
        "threads follow": ["shopping"],
        "threads fork": ["shopping", "other"],
        "threads undo": ["shopping"],
        "threads redo": ["shopping"],
        "threads moves": ["shopping"],
        "threads promote": ["shopping", "what-if"],
        "threads seal": ["shopping", "what-if"],
        "threads merge": ["shopping", "what-if"],
        "threads cherry-pick": ["shopping", "3", "--onto", "what-if"],
        "threads replay": ["shopping", "--onto", "what-if", "--dry-run"],
        "threads diff": ["shopping", "main", "what-if"],
        "threads bisect": ["shopping", "--path", "/count.json", "--above", "1"],
        "threads context": ["shopping", "--to", "openai-chat:gpt-5.6"],
        "threads render": ["shopping", "--to", "openai-chat:gpt-5.6"],
        "threads switch": ["shopping", "--to", "openai-chat:gpt-5.4"],
        "threads hand-off": ["shopping", "--to", "clerk"],
        "threads redact": ["shopping", "ask-milk-main", "--why", "mistake"],
        "threads rm": ["shopping"],
        "state ls": ["shopping"],
        "state get": ["shopping", "/todos.json"],
        "state put": ["shopping", "/x.json", "1"],
        "state rm": ["shopping", "/todos.json"],
        "state log": ["shopping", "/todos.json"],
        "state blame": ["shopping", "/todos.json"],
        "runs ls": ["shopping"],
        "runs show": ["shopping"],
        "runs wait": ["shopping"],
        "runs resume": ["shopping", "--code", "tests.surfaces.paying:both"],
        "runs start": ["shopping", "Flour"],
        "runs cancel": ["shopping"],
        "runs release": ["--all"],
        "calls ls": ["shopping"],
        "calls show": ["shopping", "c1"],
        "calls reconcile": ["shopping", "c1", "--code", "tests.surfaces.paying:both"],
        "calls resolve": ["shopping", "c1", "done"],
        "approvals ls": ["shopping"],
        "approvals show": ["shopping", "c1"],
        "approvals approve": ["shopping", "c1"],
        "approvals deny": ["shopping", "c1"],
        "approvals edit": ["shopping", "c1", "--value", "{}"],
        "approvals answer": ["shopping", "c1", "--value", "{}"],
        "checkpoints ls": ["shopping"],
        "checkpoints show": ["shopping"],
        "checkpoints derive": ["shopping"],
        "agents ls": [],
        "agents show": ["helper"],
        "agents apply": ["-f", str(Path(__file__).parent / "agent.yaml")],
        "agents export": ["helper"],
        "agents switch": ["helper", "--to", "openai-chat:gpt-5.4"],
        "memory ls": [],
        "memory add": ["words", "--owner", "ann"],
        "memory edit": ["item", "words", "--owner", "ann"],
        "memory search": ["words", "--owner", "ann"],
        "memory show": ["item", "--owner", "ann"],
        "memory forget": ["item", "--owner", "ann"],
        "memory restore": ["item", "--owner", "ann"],
        "memory pin": ["item", "--owner", "ann"],
        "memory unpin": ["item", "--owner", "ann"],
        "memory log": ["--owner", "ann"],
        "memory moves": ["--owner", "ann"],
        "memory keep": ["item", "--owner", "ann"],
        "memory undo": ["--owner", "ann"],
        "memory redo": ["--owner", "ann"],
        "artifacts ls": ["shopping"],
        "artifacts show": ["shopping", "0" * 64],
        "artifacts get": ["shopping", "0" * 64],
        "artifacts put": ["shopping", "-"],
        "mcp": [],
        "compare": ["perdure.db", "perdure.db"],
        "work": ["--until-idle", "--code", "tests.surfaces.paying:both"],
        "keys add": ["robot", "--role", "viewer"],
        "keys ls": [],
        "keys rm": ["robot"],
        "verify": [],
        "doctor": [],
        "backup": ["copy.db"],
        "copy": ["perdure.db", "other.db"],
        "gc": [],
        "sql": [],
        "costs": [],
        "eval": ["shopping", "--code", "tests.surfaces.paying:payer"],
        "export": ["shopping", "--format", "openai-chat"],
    }
