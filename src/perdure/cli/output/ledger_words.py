"""How the states of runs and calls, arguments and losses look to people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.cli.output.formatting import count
from perdure.cli.output.screen import Cell, Column, Part, Screen
from perdure.shapes.conversation import LossShape
from perdure.shapes.text import safe_json, shortened

__all__ = ["calls_in_words", "on_one_line", "show_held", "show_losses", "state", "way"]


_LENGTH = 60
_STYLES = {
    "succeeded": "good",
    "resolved": "good",
    "failed": "bad",
    "unknown": "warn",
    "needs_human": "warn",
    "awaiting_approval": "warn",
    "waiting": "warn",
    "interrupted": "warn",
    "waiting, decided": "good",
    "started": "line",
    "running": "line",
}


def state(name: str, outcome: str | None = None) -> Cell:
    """Return a state of a run or a call, in its colour, with the outcome that a person stated."""
    said = f": {outcome.replace('_', ' ')}" if outcome else ""
    return f"{name}{said}", _STYLES.get(name, "quiet")


def calls_in_words(all_: int, failed: int, unclear: int) -> Part:
    """Return how many calls there were, how many of them failed, and of how many the outcome is unknown."""
    wrong = [f"{failed} failed"] if failed else []
    wrong += [f"{unclear} of unknown outcome"] if unclear else []
    return (", ".join((str(all_), *wrong)), "warn") if wrong else str(all_)


def on_one_line(value: object) -> str:
    """Return a JSON value, short, for a table."""
    return shortened(value if isinstance(value, str) else safe_json(value, indent=None), _LENGTH)


def way(states: Sequence[str]) -> Iterator[Part]:
    """Return the states of a call, one after another."""
    for at, each in enumerate(states):
        yield (" → " if at else "", "quiet")
        yield state(each)


def show_held(screen: Screen, threads: Sequence[str]) -> None:
    """Print that the runs and approvals of these threads are held, and the command that releases them."""
    if not threads:
        return
    which, released = (
        (f"'{threads[0]}'", threads[0]) if len(threads) == 1 else (f"{len(threads)} threads", "--all")
    )
    held = (
        f"Runs and approvals of {which} are held: copied or restored from another store, which may have carried them "
        "out since."
    )
    screen.wrap(("! ", "warn"), held)
    screen.suggest("See what that store has more: ", "compare", "ORIGINAL")
    screen.suggest("If nothing else runs them: ", "runs", "release", released)


_COLUMNS = (
    Column("loss"),
    Column("where", "name", gives_way=True),
    Column("what", gives_way=True, wraps=True),
    Column("why", "quiet", gives_way=True, wraps=True),
)


def show_losses(screen: Screen, losses: Sequence[LossShape]) -> None:
    """Print how many there are, and a table of them, each once: steps of a run have the same ones."""
    if not losses:
        screen.say(("✓ ", "good"), "nothing is lost")
        return
    rows = list(dict.fromkeys((each.kind, each.where, each.what, each.why) for each in losses))
    screen.say(("! ", "warn"), f"{count(len(rows), 'thing')} could not be carried over unchanged:")
    screen.table(_COLUMNS, rows, indent=2)
