"""An agent's own map, which is state across its threads, and the definitions of agents in a store.

The map is read and written like the state of a thread.  A definition is a value in that map, at a path reserved for
Perdure, so it is versioned, audited and undone like any other value, and a commit that read the map fixes its version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.engines import registry
from perdure.engines.loops import Attempts
from perdure.errors import Invalid, NotFound, PerdureError, StaleHead, WrongStore
from perdure.history import reader, writer
from perdure.history.changes.patch_builder import Ops, Touched
from perdure.history.space import Space, TimelineContext
from perdure.history.writer import Proposal
from perdure.model import canonical, names
from perdure.model.canonical import prepared
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.head import MAIN
from perdure.model.names import shown_address
from perdure.model.recipe import without_credentials
from perdure.runtime.agent.agent import Agent, encoded_defaults
from perdure.store.plumbing import directory
from perdure.store.plumbing.handles import (
    StoreResources,
    blocking,
    deferred,
)
from perdure.store.timeline import Line

if TYPE_CHECKING:
    from perdure.runtime.agent import file
    from perdure.runtime.agent.file import Definition
    from perdure.runtime.tools.tool import Tool
else:
    file = deferred("perdure.runtime.agent.file")

__all__ = ["AgentMap", "Definitions", "Kept"]


@blocking
class AgentMap(Line):
    """The map of one agent.  Only this agent and its threads see it."""

    def __init__(self, resources: StoreResources, agent: Agent, *, declared: bool) -> None:
        """Open the map of an agent.  Neither reading nor an empty change adds the agent to the store."""
        super().__init__(TimelineContext(space=resources.agent(agent.name), defaults=encoded_defaults(agent)))
        self._resources, self._agent, self._declared, self._recorded = resources, agent, declared, False
        self.name = agent.name

    def _finish(self) -> None:
        """List the agent in the directory.  If that fails, the commit is durable and the next change tries again."""
        if not self._recorded:
            with suppress(PerdureError):
                directory.record_agent(self._resources.store, self._agent, declared=self._declared)
                self._recorded = True


PATH = "/__kernel/agent.json"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an agent's definition."""

    name: str
    definition: Definition
    digest: Digest  # of the definition itself; a run records it as its agent's version
    commit: Digest  # the commit of the agent's map that wrote it
    at: int  # µs since 1970, UTC
    home: str | None = None  # the store that the definition names, as seen from this one
    is_new: bool = False  # True: this call of `apply` wrote it

    def agent(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> Agent:
        """Return the agent that it declares, with the tools of these names; raises `Invalid` if one is missing."""
        return file.agent_of(self.name, self.definition, tools, version=self.digest, object_storage=self.home)


@blocking
class Definitions:
    """The definitions of agents in a store."""

    def __init__(self, resources: StoreResources, url: str) -> None:
        """Read and write the definitions of the store at `url`."""
        self._resources, self._url = resources, url

    def apply(self, name: str, definition: Definition, *, reason: str = "apply") -> Kept:
        """Store a definition as the newest version; a definition equal to the last one changes nothing.

        Raises `WrongStore`, having changed nothing, if the definition's `object_storage` is another store, `Invalid`
        if its options hold a credential, and `Conflict` if other writers changed the agent's map during every attempt.
        """
        names.check_name("agent", name)
        if not isinstance(definition, file.Definition):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid(
                f"a Definition is applied, not {definition!r}; nothing was changed.", code="not_a_definition"
            )
        if without_credentials(definition.options) != definition.options:
            raise Invalid(
                f"the options of agent '{name}' hold a credential, which no store may hold; nothing was changed.",
                code="credential_in_options",
                advice="Leave it out, and give it in the code that runs the agent.",
                agent=name,
            )
        definition = self._at_home(name, definition)
        directory.record_agent(self._resources.store, Agent(name), declared=False)
        space = self._resources.agent(name)
        attempts = Attempts(f"agent '{name}'", f"the definition of agent '{name}' was not changed")
        while True:
            attempts.begin()
            known = self.find(name)
            if known is not None and known.definition == definition:
                return known
            try:
                _write(space, definition, reason)
            except StaleHead:
                continue
            return msgspec.structs.replace(self.get(name), is_new=True)

    def find(self, name: str) -> Kept | None:
        """Read the newest version; None if there is none."""
        return next(self.versions(name), None)

    def get(self, name: str) -> Kept:
        """Read the newest version; raises `NotFound`."""
        found = self.find(name)
        if found is None:
            raise NotFound(
                f"no definition of agent '{name}' is kept here; nothing was read.",
                code="definition_not_found",
                advice="Keep one with `perdure agents apply -f agent.yaml`.",
                agent=name,
            )
        return found

    def versions(self, name: str) -> Iterator[Kept]:
        """Yield every version, newest first."""
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
        """Return the definition with its `object_storage` as seen from this store; raises `WrongStore`."""
        home, here = definition.object_storage, registry.place_of(self._url)
        if home is None:
            return definition
        if here not in (registry.place_of(home), registry.place_of(registry.seen_from(self._url, home))):
            raise WrongStore(name, shown_address(home), shown_address(self._url))
        # A file is named without its directory, so that the store and its definitions can be moved together.
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
    """Read a definition, without the fields that only a later release knows."""
    fields = canonical.decode(space.body(value))
    known = file.Definition.__struct_fields__
    assert isinstance(fields, dict), "a definition is stored as an object"
    return msgspec.convert(
        {key: each for key, each in fields.items() if key in known}, prepared(file.Definition)
    )
