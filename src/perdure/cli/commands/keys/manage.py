"""`perdure keys add`.

`perdure keys ls`.

`perdure keys rm`.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from cyclopts import Parameter

from perdure.cli.completion import in_store
from perdure.cli.input.stores import reading, server_installed, writing
from perdure.cli.input.users import os_user
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.screen import Column, Screen

__all__ = ["AddedKey", "KeyList", "KeyShape", "RemovedKey", "add", "ls", "rm"]

_COLUMNS = (
    Column("key", "name"),
    Column("roles"),
    Column("agents", gives_way=True),
    Column("owners", gives_way=True),
    Column("threads", gives_way=True),
    Column("person in", "quiet", leaves=1),
)

KeyName: TypeAlias = Annotated[
    str, Parameter(name="NAME", help="The name of the key, under which decisions are recorded")
]
_Names: TypeAlias = list[str] | None
_Agents: TypeAlias = Annotated[
    _Names,
    Parameter(
        name="--agent",
        metavar="NAME",
        completer=in_store,
        negative=(),
        help="Only threads of this agent; may be repeated",
    ),
]
_Owners: TypeAlias = Annotated[
    _Names,
    Parameter(
        name="--owner",
        metavar="NAME",
        completer=in_store,
        negative=(),
        help="Only threads of this owner; may be repeated",
    ),
]
_Threads: TypeAlias = Annotated[
    _Names,
    Parameter(
        name="--thread",
        metavar="ID",
        completer=in_store,
        negative=(),
        help="Only this thread; may be repeated",
    ),
]


class KeyShape(msgspec.Struct, frozen=True, kw_only=True):
    """One key, without its secret; null as a limit: there is none."""

    name: str
    roles: list[str]
    agents: list[str] | None
    owners: list[str] | None
    threads: list[str] | None
    person_header: str | None  # of a proxy: the header that names who asks


class AddedKey(Answer, frozen=True, kw_only=True):
    """A key that was made; it is shown once, and only its hash is stored."""

    name: str
    key: str

    def show(self, screen: Screen) -> None:
        """Print the key."""
        screen.say("Added key ", (self.name, "name"), "; keep it now, it is not shown again:")
        screen.say(self.key)


class KeyList(Answer, frozen=True, kw_only=True):
    """The keys of a store, by name."""

    keys: list[KeyShape]

    def show(self, screen: Screen) -> None:
        """Print a table."""
        if not self.keys:
            screen.suggest("There is no key here. Add one: ", "keys", "add", "ann", "--role", "viewer")
            return
        screen.table(
            _COLUMNS,
            [
                (
                    each.name,
                    ", ".join(each.roles),
                    ", ".join(each.agents or ("all",)),
                    ", ".join(each.owners or ("all",)),
                    ", ".join(each.threads or ("all",)),
                    each.person_header or "",
                )
                for each in self.keys
            ],
        )


class RemovedKey(Answer, frozen=True, kw_only=True):
    """A key that is refused from now on."""

    name: str

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        screen.say("Removed key ", (self.name, "name"), "; servers refuse it within a second.")


def add(
    name: KeyName,
    /,
    *,
    role: Annotated[
        list[Literal["viewer", "operator", "approver", "admin"]],
        Parameter(name="--role", negative=(), help="What the key allows; may be repeated"),
    ],
    agent: _Agents = None,
    owner: _Owners = None,
    thread: _Threads = None,
    person_header: Annotated[
        str | None,
        Parameter(metavar="HEADER", help="For a proxy with a login: the header in which it names the person"),
    ] = None,
    everywhere: Everywhere = EVERYWHERE,
) -> AddedKey:
    """Add a key for a client of the server, and print it once

    A viewer reads; an operator also runs, forks, undoes, merges, switches and changes memories; an approver reads and
    decides; an admin may do everything, such as erase. Only a hash of the key is stored.
    """
    with server_installed():
        from perdure.server.keys import Keys
    with writing(everywhere) as store:
        secret = Keys(store).add(
            name,
            role,
            agents=agent,
            owners=owner,
            threads=thread,
            person_header=person_header,
            by=os_user(),
        )
        return AddedKey(name=name, key=secret)


def ls(*, everywhere: Everywhere = EVERYWHERE) -> KeyList:
    """List the keys of the server by name, without their secrets"""
    with server_installed():
        from perdure.server.keys import Keys
    with reading(everywhere) as store:
        return KeyList(
            keys=[
                KeyShape(
                    name=key.name,
                    roles=list(key.roles),
                    agents=None if key.agents is None else list(key.agents),
                    owners=None if key.owners is None else list(key.owners),
                    threads=None if key.threads is None else list(key.threads),
                    person_header=key.person_header,
                )
                for key in Keys(store).ls()
            ]
        )


def rm(name: KeyName, /, *, everywhere: Everywhere = EVERYWHERE) -> RemovedKey:
    """Remove a key; servers refuse it within a second"""
    with server_installed():
        from perdure.server.keys import Keys
    with writing(everywhere) as store:
        Keys(store).rm(name, by=os_user())
        return RemovedKey(name=name)
