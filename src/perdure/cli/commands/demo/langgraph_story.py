"""The story of `perdure demo --with langgraph`: the framework alone, and the framework with a saver and a guard of ours.

python -m perdure.cli.commands.demo.langgraph_story STORE THREAD BANK guarded|plain

It is killed after a payment, two of its runs meet on one thread, and it talks for 200 turns.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from perdure.cli.commands.demo.bank import TAKEN, Bank
from perdure.cli.commands.demo.screen import Stage
from perdure.cli.commands.demo.scripted_model import RENT
from perdure.errors import Unsupported
from perdure.shapes.text import size
from perdure.store.open_store import open as open_store
from perdure.store.store import Store

__all__ = ["TURNS", "check_installed", "tell_langgraph"]

TURNS = 200
_WORDS = "The quick brown fox jumps over the lazy dog. " * 22  # about 1 KB, each way
_PAYER = "perdure.cli.commands.demo.langgraph_story"
_SIGKILL = -9


def check_installed() -> None:
    """Raise `Unsupported` if LangGraph is not installed."""
    if find_spec("langgraph") is None:
        raise Unsupported(
            "LangGraph is not installed; nothing was done.",
            code="package_missing",
            advice="Install it with `pip install 'perdure[langgraph]'`.",
            package="langgraph",
        )


def tell_langgraph(stage: Stage, store: Store, directory: Path, *, turns: int = TURNS) -> None:
    """Tell the story with a bank and the framework's own files in `directory`; raises `BrokenPromise`."""
    stage.opens(
        "LangGraph, with and without Perdure",
        "The same small graphs, with scripted models: first as they are, then with a saver and a guard.",
        f"All of this happens for real, in the store {store.url}.",
    )
    _kill(stage, store, directory)
    _resume(stage, store, directory)
    _race(stage, store, directory)
    _grow(stage, store, directory, turns)
    stage.act("Verify", "What the framework stored is a history like any other.")
    stage.prove("the whole store is intact", store.verify().ok)


def _bank(directory: Path, how: str) -> Bank:
    return Bank(directory / f"{how}.txt")


def _kill(stage: Stage, store: Store, directory: Path) -> None:
    stage.act(
        "Pay, and be killed",
        "A graph pays through a bank, which is a file here, and is killed (SIGKILL) once the bank has the money.",
        "It is done twice: with a plain ToolNode, and with one whose calls go through the ledger (ToolGuard).",
        'Both graphs store every step before the next one begins (durability="sync").',
    )
    stage.says("user", RENT)
    ended = [_killed(store, directory, how) for how in ("plain", "guarded")]
    once = [_bank(directory, how).payments() for how in ("plain", "guarded")]
    _books(stage, directory)
    stage.prove(
        "both processes were killed, with the rent paid once each",
        ended == [_SIGKILL] * 2 and once == [["landlord 900"]] * 2,
    )


def _resume(stage: Stage, store: Store, directory: Path) -> None:
    from perdure.integrations.langgraph.sample_graphs import pay_or_resume

    stage.act(
        "Start both again",
        "LangGraph goes on from its last checkpoint: the tool's node has not ended, so it runs again.",
    )
    said: dict[str, str] = {}
    for how in ("plain", "guarded"):
        pay = _paying(_bank(directory, how))
        said[how] = pay_or_resume(store, f"rent-{how}", pay, None, is_guarded=how == "guarded")
    _books(stage, directory)
    stage.prove("without the guard it paid twice", len(_bank(directory, "plain").payments()) == 2)
    stage.prove("with the guard it paid once", _bank(directory, "guarded").payments() == ["landlord 900"])
    stage.says("assistant", said["guarded"])
    (call,) = store.thread("rent-guarded").calls()
    stage.tells("ledger", f"{call.tool} is ", (call.state, "warn"))
    stage.prove(
        "the ledger says that the outcome is unknown, and the model was told", call.state == "unknown"
    )


def _race(stage: Stage, store: Store, directory: Path) -> None:
    from perdure.integrations.langgraph import Saver
    from perdure.integrations.langgraph.sample_graphs import plain_saver, race

    stage.act(
        "Two runs on one thread",
        "While the first run is in its node, a second one begins on the same thread.",
    )
    with plain_saver(directory / "race.db") as saver:
        name = type(saver).__name__
        theirs = race(saver, "race")
    ours = race(Saver(store), "race")
    stage.tells("theirs", f"{name} reports success of: ", (", ".join(theirs.acknowledged), "name"))
    stage.tells("", "the latest state has: ", (", ".join(theirs.latest), "bad"))
    lost = set(theirs.acknowledged) - set(theirs.latest)
    stage.prove(f"with {name} both runs report success, and one of them is gone", len(lost) == 1)
    stage.tells("ours", "the second run is refused: ", (str(ours.refused), "warn"), "; it is made again")
    stage.tells("", "the latest state has: ", (", ".join(ours.latest), "name"))
    is_kept = ours.refused is not None and set(ours.acknowledged) == set(ours.latest)
    stage.prove("with ours the second is told, and everything that was acknowledged is there", is_kept)


def _grow(stage: Stage, store: Store, directory: Path, turns: int) -> None:
    from perdure.integrations.langgraph import Saver
    from perdure.integrations.langgraph.sample_graphs import chat_turns, has_sqlite_saver, plain_saver

    stage.act(
        f"The bytes after {turns} turns",
        "One conversation, about 2 KB a turn; each saver has a file of its own, theirs by SqliteSaver.",
    )
    ours_file, theirs_file = directory / "turns-ours.db", directory / "turns-theirs.db"
    with open_store(ours_file) as other:
        ours = chat_turns(Saver(other), "turns", turns, text=_WORDS)
    stage.prove(f"all {turns} inputs are in the latest state", ours == [str(each) for each in range(turns)])
    stage.tells("ours", (size(_bytes(ours_file)), "name"))
    if not has_sqlite_saver():
        stage.tells(
            "SqliteSaver", "is not installed (langgraph-checkpoint-sqlite): no comparison", style="warn"
        )
        return
    with plain_saver(theirs_file) as saver:
        chat_turns(saver, "turns", turns, text=_WORDS)
    stage.tells("theirs", (size(_bytes(theirs_file)), "bad"))
    times = _bytes(theirs_file) / _bytes(ours_file)
    stage.prove(f"ours is {times:.0f} times smaller", times > 2)


def _bytes(file: Path) -> int:
    """Return the size of a database with the files beside it."""
    return sum(each.stat().st_size for each in file.parent.glob(f"{file.name}*"))


def _books(stage: Stage, directory: Path) -> None:
    for how in ("plain", "guarded"):
        book = _bank(directory, how).payments()
        stage.tells(how, "its bank has: ", (", ".join(book), "name" if len(book) == 1 else "bad"))


def _killed(store: Store, directory: Path, how: str) -> int:
    """Return how a process ended that was killed after the bank had its money."""
    words = [store.url, f"rent-{how}", str(directory / f"{how}.txt"), how]
    command = [sys.executable, "-m", _PAYER, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == TAKEN:
                break
        process.kill()
    return process.returncode


def _paying(bank: Bank) -> Callable[[str, int], str]:
    def pay(to: str, amount: int) -> str:
        return bank.pay(to, amount, reference="-")

    return pay


def _main(place: str, thread: str, book: str, how: str) -> None:
    from perdure.integrations.langgraph.sample_graphs import pay_or_resume

    with open_store(place, create=False) as store:
        pay = _paying(Bank(Path(book), slow=True))
        pay_or_resume(store, thread, pay, RENT, is_guarded=how == "guarded")


if __name__ == "__main__":
    _main(*sys.argv[1:])
