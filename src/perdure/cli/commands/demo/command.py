"""`perdure demo`: a short story, told on a real store and proved step by step."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from perdure.cli.commands.demo import branches
from perdure.cli.commands.demo.screen import BrokenPromise, Stage
from perdure.cli.errors import FAILED
from perdure.cli.output.answer import Answer
from perdure.cli.output.screen import Screen, console
from perdure.errors import Conflict
from perdure.store.open_store import open as open_store

__all__ = ["DemoAnswer", "demo"]

_EVERYWHERE = Group("Everywhere", sort_key=9)


class DemoAnswer(Answer, frozen=True, kw_only=True):
    """What the story proved, and where its store is."""

    store: str
    bank: str  # a directory: what was paid, by the ordinary loop and by ours
    ok: bool
    proved: list[str]
    broken: str | None  # the promise that did not hold; null: all did

    @property
    def exit_code(self) -> int:
        """0 if every promise held."""
        return 0 if self.ok else FAILED

    def show(self, screen: Screen) -> None:
        """Say where the store is, and how to look inside."""
        screen.gap()
        if not self.ok:
            screen.say(("✗ ", "bad"), f"The story ended early: {self.broken}")
            screen.say(("The store is kept for a look: ", "quiet"), self.store)
            return
        screen.say(("✓ ", "good"), f"All {len(self.proved)} promises held.")
        screen.facts([("The store is yours", (self.store, "name")), ("The bank's books", self.bank)])
        screen.gap()
        screen.say("Look inside:")
        for line in branches.look_inside(self.store):
            screen.say(f"  {line}")


def demo(
    *,
    store: Annotated[
        str | None,
        Parameter(
            metavar="PATH",
            group=_EVERYWHERE,
            help="A new file for the store; one in this directory if left out",
        ),
    ] = None,
    json: Annotated[
        bool,
        Parameter(
            negative=(), group=_EVERYWHERE, show_default=False, help="Tell only what was proved, as JSON"
        ),
    ] = False,
) -> DemoAnswer:
    """Show what Perdure does, in a short story on a store that you keep

    Every step is done for real and proved: if a promise did not hold, the story would stop
    there and exit with 1.
    """
    place = _fresh(store)
    stage = Stage(None if json else Screen(console()))
    broken: str | None = None
    try:
        with open_store(place) as opened:
            branches.tell(stage, opened, _bank(place))
    except BrokenPromise as promise:
        broken = str(promise)
    return DemoAnswer(
        store=str(place), bank=str(_beside(place)), ok=broken is None, proved=stage.proved, broken=broken
    )


def _fresh(given: str | None) -> Path:
    """A file that does not exist yet; raises `Conflict` if the one that was asked for does."""
    if given is None:
        names = ("perdure-demo.db" if number == 1 else f"perdure-demo-{number}.db" for number in count(1))
        return next(path for path in map(Path, names) if not path.exists() and not _beside(path).exists())
    for path in (Path(given), _beside(Path(given))):
        if path.exists():
            raise Conflict(
                f"{path} exists already; nothing was done to it. Choose another path for the demo."
            )
    return Path(given)


def _beside(store: Path) -> Path:
    """The directory for what the story needs beside its store."""
    return store.with_name(f"{store.stem}-bank")


def _bank(store: Path) -> Path:
    directory = _beside(store)
    directory.mkdir()
    return directory
