"""An agent's own map: state that lives across its threads, read and written like a thread's.

Definitions of agents that a store keeps: every version of each, in the history of the agent's own map.

A definition is a value of that map like any other, at a path that belongs to Perdure; so it is
versioned, audited and undone like any other, and a commit that read the map has fixed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from perdure.engines import registry
from perdure.errors import Conflict, Invalid, NotFound, PerdureError, StaleHead, WrongStore
from perdure.history import reader, writer
from perdure.history.agent_map import TimelineContext
from perdure.history.changes.patch_builder import Ops
from perdure.history.changes.touched_paths import Touched
from perdure.history.space import Space
from perdure.history.writer import Proposal
from perdure.model import canonical, names
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.head import MAIN
from perdure.runtime.agent.agent import Agent, encoded_defaults
from perdure.runtime.agent.file import Definition, agent_of
from perdure.runtime.tools.tool import Tool
from perdure.store.plumbing import directory
from perdure.store.plumbing.handles import blocking
from perdure.store.plumbing.resources import StoreResources
from perdure.store.timeline import Line

__all__ = ["AgentMap", "PATH", "Definitions", "Kept"]


@blocking
class AgentMap(Line):
    """The map of one agent.  Nobody but this agent and its threads sees it."""

    def __init__(self, resources: StoreResources, agent: Agent, *, declared: bool) -> None:
        """Hold the map of an agent; reading it begins nothing, and nor does a change that comes to nothing."""
        super().__init__(TimelineContext(space=resources.agent(agent.name), defaults=encoded_defaults(agent)))
        self._resources, self._agent, self._declared, self._recorded = resources, agent, declared, False
        self.name = agent.name

    def _finish(self) -> None:
        """List the agent in the directory.  What was committed is durable; the next change tries it again."""
        if not self._recorded:
            with suppress(PerdureError):
                directory.record_agent(self._resources.store, self._agent, declared=self._declared)
                self._recorded = True


PATH = "/__kernel/agent.json"

_TRIES_MAX = 16


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an agent's definition."""

    name: str
    definition: Definition
    digest: Digest  # of the definition itself; a run records it as its agent's version
    commit: Digest  # of the agent's map, with which it came
    at: int  # µs since 1970, UTC
    home: str | None = None  # the store that the definition names, as it is seen from this one
    is_new: bool = False  # whether it was applied just now

    def agent(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> Agent:
        """The agent that it declares, with the tools that it names out of `tools`; raises `Invalid` if one is missing."""
        return agent_of(self.name, self.definition, tools, version=self.digest, object_storage=self.home)


@blocking
class Definitions:
    """The agents whose definitions are kept in a store."""

    def __init__(self, resources: StoreResources, url: str) -> None:
        """Look into that store, which is at `url`."""
        self._resources, self._url = resources, url

    def apply(self, name: str, definition: Definition, *, reason: str = "apply") -> Kept:
        """Keep a definition as the newest version; the same as the last one changes nothing.

        Raises `WrongStore`, having changed nothing, if the definition's `object_storage` is another store, and
        `Conflict` if others change the agent's map all the time.
        """
        names.check_name("agent", name)
        if not isinstance(definition, Definition):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid(f"a Definition is applied, not {definition!r}; nothing was changed.")
        definition = self._at_home(name, definition)
        directory.record_agent(self._resources.store, Agent(name), declared=False)
        space = self._resources.agent(name)
        for _ in range(_TRIES_MAX):
            known = self.find(name)
            if known is not None and known.definition == definition:
                return known
            try:
                _write(space, definition, reason)
            except StaleHead:
                continue
            return msgspec.structs.replace(self.get(name), is_new=True)
        raise Conflict(
            f"agent '{name}' is being changed by others all the time; nothing was changed. Try again."
        )

    def find(self, name: str) -> Kept | None:
        """The newest version; None if there is none."""
        return next(self.versions(name), None)

    def get(self, name: str) -> Kept:
        """The newest version; raises `NotFound`."""
        found = self.find(name)
        if found is None:
            raise NotFound(
                f"no definition of agent '{name}' is kept here; nothing was read. "
                "Keep one with `perdure agents apply -f agent.yaml`."
            )
        return found

    def versions(self, name: str) -> Iterator[Kept]:
        """Every version, newest first, read as they are asked for."""
        space = self._resources.agent(names.check_name("agent", name))
        hold = space.engine.hold(space.name, MAIN)
        before: Digest | None = None
        for step in reader.steps(space, hold.head.commit if hold else None):
            touched = Touched()
            touched.add_ops(step.changeset.patch.ops)
            found = space.tree(step.commit.root).get(PATH) if touched.covers(PATH) else None
            if found is not None and found.value != before:
                before = found.value
                definition = _read(space, found.value)
                home = definition.object_storage
                yield Kept(
                    name=name,
                    definition=definition,
                    home=None if home is None else registry.seen_from(self._url, home),
                    digest=found.value,
                    commit=step.digest,
                    at=step.commit.at,
                )

    def _at_home(self, name: str, definition: Definition) -> Definition:
        """The definition with its `object_storage` as it is seen from this store; raises `WrongStore`."""
        home, here = definition.object_storage, registry.place_of(self._url)
        if home is None:
            return definition
        if here not in (registry.place_of(home), registry.place_of(registry.seen_from(self._url, home))):
            raise WrongStore(name, home, self._url)
        # A file is named without its directory, so that both can be moved together.
        return msgspec.structs.replace(definition, object_storage=registry.own_name(self._url))


def _write(space: Space, definition: Definition, reason: str) -> None:
    head = reader.head_to_move(space, MAIN)
    ops = Ops(space, space.root_at(head.commit))
    ops.put(PATH, definition.fields)
    patched = ops.finish()
    proposal = Proposal(
        reason=reason, root=patched.root, patch=patched.patch, objects=patched.objects, cells=patched.cells
    )
    intent = digest_of(Kind.BODY, canonical.encode(["definition", reason, definition.fields]))
    writer.commit(space, head, proposal, op_id=space.ids(), intent=intent)


def _read(space: Space, value: Digest) -> Definition:
    """A definition; one of a later release may say more than this one knows."""
    fields = canonical.decode(space.body(value))
    known = Definition.__struct_fields__
    assert isinstance(fields, dict), "a definition is kept as an object"
    return msgspec.convert({key: each for key, each in fields.items() if key in known}, Definition)
