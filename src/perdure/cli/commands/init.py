"""`perdure init`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.screen import Screen
from perdure.cli.usage import to_be_named
from perdure.errors import NotFound
from perdure.model.names import shown_address
from perdure.store.open_store import open as open_store

__all__ = ["Initialised", "init"]


class Initialised(Answer, frozen=True, kw_only=True):
    """A store that is there now, whether it was before or not."""

    store: str
    made: bool

    def show(self, screen: Screen) -> None:
        """Print one sentence, and what to do next."""
        if not self.made:
            screen.say((self.store, "name"), " is a store already; nothing was changed.")
            return
        screen.say("Created a store: ", (self.store, "name"))
        begin = ("threads", "begin", "shopping", "--agent", "helper")
        screen.suggest("Begin a thread in it: ", *begin, store=to_be_named(self.store))


def init(
    path: Annotated[
        str | None,
        Parameter(name="PATH", help="The file of the store, in place of --store", show_default=False),
    ] = None,
    /,
    *,
    everywhere: Everywhere = EVERYWHERE,
) -> Initialised:
    """Create a store

    A store that is there already is left as it is.
    """
    place = everywhere.store if path is None else path
    made = not _exists(place)
    if made:
        open_store(place).close()
    return Initialised(store=shown_address(place), made=made)


def _exists(place: str) -> bool:
    try:
        open_store(place, read_only=True).close()
    except NotFound:
        return False
    return True
