"""Reads and writes agents as YAML or TOML files, instead of declaring them in code.

    apiVersion: perdure.dev/v1alpha1
    kind: Agent
    metadata: {name: planner}
    spec: {backend: anthropic:claude-sonnet-5-5, instructions: Be brief., tools: [book]}

A file names tools, and never holds code: the program that loads the agent gives the functions.  An
unknown field is an error with its line.  Reading a file writes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import msgspec

from perdure.context.limits import ContextLimits
from perdure.errors import Invalid, PerdureError
from perdure.model import names
from perdure.model.canonical import Json, prepared
from perdure.model.config_text import Document, Place, read_toml, read_yaml, write_yaml
from perdure.providers import registry
from perdure.providers.catalog import Catalog
from perdure.providers.profile import STRICT
from perdure.runtime.agent.agent import Agent
from perdure.runtime.tools.tool import Tool, tool
from perdure.switching.policy import Policy
from perdure.switching.route import Route, Trigger

__all__ = [
    "API_VERSION",
    "Definition",
    "MemorySpec",
    "ShownSpec",
    "Way",
    "agent_of",
    "read_definition",
    "write_definition",
]

API_VERSION = "perdure.dev/v1alpha1"

_GROUPS = frozenset({API_VERSION, "joch.dev/v1alpha1"})
_TOOL = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,127}\Z")
_PLACE = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[(\d+)\]")


class MemorySpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What of the owner's memory its runs are shown."""

    limit: int = ContextLimits.memory  # items at the most; 0: none

    def __post_init__(self) -> None:
        """Raise `Invalid` for a number that cannot be."""
        ContextLimits(memory=self.limit)


class ShownSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How much of a conversation it is shown."""

    turns: int = ContextLimits.turns
    reserve: int | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        """Raise `Invalid` for a number that cannot be."""
        ContextLimits(turns=self.turns, reserve=self.reserve, window=self.window)


class Way(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A route, by the names of its backends."""

    fallbacks: tuple[str, ...]
    primary: str | None = None
    requires: tuple[str, ...] = ()
    triggers: tuple[Trigger, ...] = Route.triggers  # pyright: ignore[reportAssignmentType]
    budget_tokens: int | None = None

    def __post_init__(self) -> None:
        """Raise `Invalid` for a route that cannot be."""
        self.route()

    def route(self) -> Route:
        """The route that it spells."""
        return Route(
            self.fallbacks,
            primary=self.primary,
            requires=self.requires,
            triggers=self.triggers,
            budget_tokens=self.budget_tokens,
        )


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a file says of an agent; its name is beside it, in the file's metadata."""

    backend: str | None = None  # provider:model
    instructions: str = ""
    personality: str = ""  # how it speaks; added after the instructions
    tools: tuple[str, ...] = ()  # by name
    memory: MemorySpec = MemorySpec()
    context: ShownSpec = ShownSpec()
    policy: Policy = Policy()
    route: Way | None = None
    options: dict[str, Any] = {}  # handed to the backend
    object_storage: str | None = None  # where its state lives; None: in the store that it is applied to
    version: str | None = None  # the author's own

    def on(self, backend: str) -> Definition:
        """The same on another backend; if that was a fallback, the one before takes its place in the route."""
        route, before = self.route, self.backend
        if route is not None:
            others = [before if each == backend else each for each in route.fallbacks]
            primary = None if route.primary in (backend, before) else route.primary
            left = tuple(each for each in others if each is not None)
            route = msgspec.structs.replace(route, fallbacks=left, primary=primary) if left else None
        return msgspec.structs.replace(self, backend=backend, route=route)

    @property
    def fields(self) -> dict[str, Json]:
        """What is kept: the fields that say anything, as plain JSON."""
        return msgspec.json.decode(msgspec.json.encode(self))


class _Metadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    labels: dict[str, str] = {}


class _AgentFile(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"api_version": "apiVersion"}
):
    api_version: str
    kind: str
    metadata: _Metadata
    spec: Definition


def read_definition(
    text: str, *, name: str = "the file", toml: bool = False, models: Catalog | None = None
) -> tuple[str, Definition]:
    """Return the agent's name and definition in a file; raise `Invalid`, with the line, if there is none.

    With `models`, a backend whose vendor has no such model is invalid too.
    """
    document = read_toml(text, name=name) if toml else read_yaml(text, name=name)
    value = document.value
    if not isinstance(value, dict):
        raise document.wrong((), "this is no agent: apiVersion, kind, metadata and spec are missing")
    if value.get("kind") != "Agent":
        raise document.wrong(("kind",), f"an agent has kind: Agent, not {value.get('kind')!r}")
    if value.get("apiVersion") not in _GROUPS:
        raise document.wrong(("apiVersion",), f"apiVersion is {API_VERSION}, not {value.get('apiVersion')!r}")
    try:
        found = msgspec.convert(cast("object", value), prepared(_AgentFile))
    except msgspec.ValidationError as error:
        raise _unfit(document, error) from error
    _check(document, found, models)
    return found.metadata.name, found.spec


def write_definition(agent: str, definition: Definition) -> str:
    """Write a definition as a file; reading it returns the same one."""
    about: Json = {"name": agent}
    return write_yaml(
        {"apiVersion": API_VERSION, "kind": "Agent", "metadata": about, "spec": definition.fields}
    )


def agent_of(
    name: str,
    definition: Definition,
    tools: Iterable[Tool | Callable[..., Any]] = (),
    *,
    version: str = "",
    object_storage: str | None = None,
) -> Agent:
    """Return the agent that a definition declares, with the tools that it names out of `tools`.

    Raises `Invalid` if one of them is missing.  `version` is recorded with every run.  `object_storage` is the
    store of its threads where the definition's own is seen from elsewhere; None: as the definition has it.
    """
    given = {each.name: each for each in map(_tool, tools)}
    missing = [each for each in definition.tools if each not in given]
    if missing:
        raise Invalid(
            f"agent '{name}' names the tool {', '.join(missing)}, and it was not given; nothing was declared.",
            code="tool_not_given",
            advice="A definition names tools and holds no code: give the functions too.",
            agent=name,
            tools=tuple(missing),
        )
    words = (definition.instructions, definition.personality)
    return Agent(
        name,
        backend=definition.backend,
        instructions="\n\n".join(each.strip() for each in words if each.strip()),
        tools=[given[each] for each in definition.tools],
        options=definition.options,
        policy=definition.policy,
        route=definition.route.route() if definition.route else None,
        context=ContextLimits(
            turns=definition.context.turns,
            reserve=definition.context.reserve,
            window=definition.context.window,
            memory=definition.memory.limit,
        ),
        version=version or definition.version,
        object_storage=object_storage or definition.object_storage,
    )


def _tool(each: Tool | Callable[..., Any]) -> Tool:
    return each if isinstance(each, Tool) else tool(each)


def _check(document: Document, found: _AgentFile, models: Catalog | None) -> None:
    """Raise `Invalid` for values that have the right form and break a rule."""
    spec, route = found.spec, found.spec.route
    with _at(document, ("metadata", "name")):
        names.check_name("agent", found.metadata.name)
    named: list[tuple[Place, str | None]] = [(("spec", "backend"), spec.backend)]
    if route is not None:
        named.append((("spec", "route", "primary"), route.primary))
        named += [(("spec", "route", "fallbacks", at), each) for at, each in enumerate(route.fallbacks)]
    for place, backend in named:
        if backend is not None:
            with _at(document, place):
                _check_backend(backend, models)
    for index, each in enumerate(spec.tools):
        if each in spec.tools[:index]:
            raise document.wrong(("spec", "tools", index), f"the tool '{each}' is there twice")
        if not _TOOL.match(each):
            raise document.wrong(("spec", "tools", index), f"{each!r} is no name of a tool")
    with _at(document, ("spec", "route")):
        agent_of(found.metadata.name, msgspec.structs.replace(spec, tools=()))


def _check_backend(backend: str, models: Catalog | None) -> None:
    target = registry.target(backend, models)
    if models is None or target.provider not in STRICT or models.card(target.provider, target.model).known:
        return
    raise Invalid(
        f"{target.provider} has no model '{target.model}' that is known; nothing was declared.",
        code="model_not_found",
        advice="If it is new, add it to your models file.",
        provider=target.provider,
        model=target.model,
    )


class _at:  # noqa: N801  # reads as a word
    """Gives errors inside the block a place in the document."""

    def __init__(self, document: Document, place: Place) -> None:
        self._document, self._place = document, place

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PerdureError):
            raise self._document.refused(self._place, error) from error


def _unfit(document: Document, error: msgspec.ValidationError) -> Invalid:
    """The error of a value that does not fit, at its place, which msgspec names in its text alone."""
    why, _, path = str(error).partition(" - at `$")
    place: list[str | int] = [word or int(number) for word, number in _PLACE.findall(path)]
    if isinstance(error.__cause__, PerdureError):  # a check of ours, as of a route
        return document.refused(tuple(place), error.__cause__)
    unknown = re.match(r"Object contains unknown field `([^`]+)`", why)
    if unknown:
        there = ", ".join(_fields_at(place))
        place.append(unknown[1])
        return document.wrong(tuple(place), f"there is no such field; there are {there}")
    return document.wrong(tuple(place), f"{why[:1].lower()}{why[1:]}")


def _fields_at(place: list[str | int]) -> Iterable[str]:
    shape: Mapping[tuple[str | int, ...], tuple[str, ...]] = {
        (): ("apiVersion", "kind", "metadata", "spec"),
        ("metadata",): _Metadata.__struct_fields__,
        ("spec",): Definition.__struct_fields__,
        ("spec", "memory"): MemorySpec.__struct_fields__,
        ("spec", "context"): ShownSpec.__struct_fields__,
        ("spec", "policy"): Policy.__struct_fields__,
        ("spec", "route"): Way.__struct_fields__,
    }
    return shape.get(tuple(place), ())
