"""`perdure threads ls`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.input.stores import reading
from perdure.cli.input.suggestions import agent_names, owner_names
from perdure.cli.options import EVERYWHERE, Everywhere, Limit
from perdure.cli.output.answer import Answer, cut_off
from perdure.cli.output.display import digest
from perdure.cli.output.formatting import ago, count
from perdure.cli.output.screen import Column, Screen
from perdure.model.names import SERVER_THREAD, near
from perdure.shapes.text import now
from perdure.shapes.threads import ThreadPage, ThreadShape

__all__ = ["ThreadShape", "Threads", "ls"]

_BEGIN = ("threads", "begin", "shopping", "--agent", "helper")

_COLUMNS = (
    Column("thread", "name", is_id=True),
    Column("agent", gives_way=True, leaves=4),
    Column("owner", gives_way=True, leaves=1),
    Column("turns", right=True),
    Column("lines", right=True, leaves=2),
    Column("last", "when", leaves=3),
    Column("head", "digest"),
)


class Threads(ThreadPage, Answer, frozen=True, kw_only=True):
    """The threads of a store, by id."""

    def show(self, screen: Screen) -> None:
        """Print a table."""
        if self.near:
            screen.say(f"There is no such thread here. Did you mean {' or '.join(self.near)}?")
            return
        if not self.threads:
            screen.suggest("There is no thread here. Begin one: ", *_BEGIN)
            return
        at_now = now()
        screen.table(
            _COLUMNS,
            [
                (
                    each.id,
                    each.agent,
                    each.owner or "",
                    f"{each.turns:,}",
                    f"{each.timelines:,}",
                    ago(each.last_at, at_now),
                    digest(each.head.commit) if each.head.commit else "",
                )
                for each in self.threads
            ],
        )
        if self.more:
            screen.say((f"The first {count(len(self.threads), 'thread')}; --limit 0 lists all.", "quiet"))


def ls(
    *,
    agent: Annotated[str | None, Parameter(metavar="NAME", help="Only threads of this agent")] = None,
    owner: Annotated[str | None, Parameter(metavar="NAME", help="Only threads of this owner")] = None,
    limit: Limit = 100,
    everywhere: Everywhere = EVERYWHERE,
) -> Threads:
    """List threads by id

    The thread with the keys and the records of `perdure serve` is listed with `--agent perdure.server`.
    """
    with reading(everywhere) as store:
        wanted = (
            each
            for each in store.threads(owner=owner, agent=agent)
            if each.id != SERVER_THREAD or agent == SERVER_THREAD
        )
        found, more = cut_off(list(islice(wanted, limit + 1 if limit else None)), limit)
        close = [] if found else [*_near(agent, agent_names(store)), *_near(owner, owner_names(store))]
        return Threads(threads=[ThreadShape.of(thread) for thread in found], more=more, near=close)


def _near(name: str | None, known: Iterator[str]) -> list[str]:
    """Return names that are close to an unknown one; none if the name exists."""
    if name is None:
        return []
    names = set(known)
    return [] if name in names else near(name, names)
