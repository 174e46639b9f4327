"""Plug-ins and guards: code that takes part in every run of an agent, at fixed phases.

A plug-in declares state of its own and hooks phases.  A hook gets a `Moment`: it may read and
write state, which is committed with the step it belongs to.  A hook that raises fails the run.

A guard checks what comes in, what a model answers, and the arguments of its calls.  A check returns a reason to
refuse, or None.  A refusal is an event of the history and fails no run; a check that raises does.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar, overload

from msgspec import UNSET

from perdure.errors import Invalid, NotFound
from perdure.history.changes.patch_builder import Ops
from perdure.history.changes.values import Given, typed
from perdure.model import names
from perdure.model.context import Context
from perdure.model.message import Message, ToolCall
from perdure.model.text import well_formed
from perdure.runtime.agent.state import State

if TYPE_CHECKING:
    # A program that only reads declares no guard: the function that needs a call imports its module.
    from perdure.runtime.tools.call import Call
    from perdure.runtime.tools.tool import Tool

__all__ = [
    "PHASES",
    "Guard",
    "Hook",
    "Moment",
    "Phase",
    "Plugin",
    "Refusal",
    "refusal_of",
    "refused_calls",
    "run_phase",
]

Phase: TypeAlias = Literal["run_start", "before_inference", "after_inference", "step_end", "run_end"]

PHASES: tuple[Phase, ...] = ("run_start", "before_inference", "after_inference", "step_end", "run_end")

_T = TypeVar("_T")
_WHY_MAX = 2_000  # characters of a reason


class Moment:
    """Where a run is when a hook is called, and the state as the run sees it."""

    def __init__(
        self,
        phase: Phase,
        run: str,
        ops: Ops,
        *,
        context: Context | None = None,
        message: Message | None = None,
        status: str | None = None,
    ) -> None:
        """Start at a phase; the hook's writes go into `ops`."""
        self._ops = ops
        self.phase, self.run = phase, run
        self.context = context  # before_inference: what the model is about to be shown
        self.message = message  # after_inference: what it said
        self.status = status  # run_end: how the run ends

    @overload
    def get(self, path: str, *, default: Any = ...) -> Any: ...
    @overload
    def get(self, path: str, *, type: type[_T], default: Any = ...) -> _T: ...
    def get(self, path: str, *, type: Any = None, default: Any = UNSET) -> Any:
        """The value at `path`, with the run's own writes; `default` if there is none, else `NotFound`."""
        if self._ops.entry(path) is not None:
            return typed(path, self._ops.value(path), type)
        if default is UNSET:
            raise NotFound(
                f"there is nothing at {path}.", code="path_not_found", advice="Give a default.", path=path
            )
        return default

    def put(self, path: str, value: Given) -> None:
        """Let `path` hold a value."""
        self._ops.put(_own(path), value)

    def delete(self, path: str) -> None:
        """Let `path` hold nothing; raises `NotFound` if that is so already."""
        self._ops.delete(_own(path))

    def paths(self, prefix: str = "/") -> list[str]:
        """The paths that `prefix` covers, sorted."""
        return self._ops.paths(prefix)


Hook: TypeAlias = Callable[[Moment], Awaitable[None] | None]


@dataclass(frozen=True)
class Plugin:
    """State and hooks that belong together, under one name."""

    name: str
    _: KW_ONLY
    state: Sequence[State] = ()
    run_start: Hook | None = None  # the input is durable, run scope is cleared
    before_inference: Hook | None = None  # the model is about to be asked
    after_inference: Hook | None = None  # it has spoken
    step_end: Hook | None = None  # its turn is about to be committed
    run_end: Hook | None = None  # the run is about to end

    def __post_init__(self) -> None:
        """Raise `Invalid` for a name that cannot be, or state that was not declared with `state`."""
        names.check_name("plug-in", self.name)
        for each in self.state:
            if not isinstance(each, State):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise Invalid(
                    f"{each!r} does not declare state of plug-in '{self.name}'.",
                    code="state_declaration_invalid",
                    advice="Use perdure.state(…).",
                    plugin=self.name,
                )


@dataclass(frozen=True)
class Guard:
    """Checks under one name.  Each returns, or awaits, the reason to refuse; None accepts."""

    name: str
    _: KW_ONLY
    input: Callable[[Message], Awaitable[str | None] | str | None] | None = None  # a message that came in
    output: Callable[[Message], Awaitable[str | None] | str | None] | None = None  # the last answer of a run
    arguments: Callable[[Call], Awaitable[str | None] | str | None] | None = (
        None  # of a call, before it is made
    )

    def __post_init__(self) -> None:
        """Raise `Invalid` for a name that cannot be, or a guard that checks nothing."""
        names.check_name("guard", self.name)
        checks = (self.input, self.output, self.arguments)
        if not any(checks) or not all(check is None or callable(check) for check in checks):
            raise Invalid(
                f"guard '{self.name}' checks nothing, or with something that is no function; nothing was declared.",
                code="guard_invalid",
                advice="Give it a function for input=, output= or arguments=.",
                guard=self.name,
            )


class Refusal(NamedTuple):
    """What a guard refused, and why."""

    guard: str
    why: str


async def refusal_of(
    guards: Sequence[Guard], subject: Literal["input", "output", "arguments"], given: Message | Call
) -> Refusal | None:
    """Return the refusal of the first guard that refuses; None if all accept."""
    for guard in guards:
        check: Callable[[Any], Awaitable[str | None] | str | None] | None = getattr(guard, subject)
        found = None if check is None else check(given)
        why = await found if inspect.isawaitable(found) else found
        if why is not None:
            return Refusal(guard.name, well_formed(str(why))[:_WHY_MAX] or "it gave no reason")
    return None


async def refused_calls(
    guards: Sequence[Guard], toolbox: Mapping[str, Tool], calls: Sequence[ToolCall]
) -> dict[str, Refusal]:
    """Return what the guards refuse of these calls, by id.

    They are not asked about a call that is refused anyway: one to no tool, or with arguments that its tool refuses.
    """
    from perdure.runtime.tools.call import Call

    found: dict[str, Refusal] = {}
    for call in calls:
        tool = toolbox.get(call.name)
        try:
            arguments = None if tool is None else tool.validated(call.args)
        except Invalid:
            continue
        if arguments is not None:
            handle = Call(id=call.id, tool=call.name, arguments=arguments.normal)
            refused = await refusal_of(guards, "arguments", handle)
            if refused is not None:
                found[call.id] = refused
    return found


async def run_phase(plugins: Sequence[Plugin], moment: Moment) -> None:
    """Call every hook of a phase, in the order in which the plug-ins were given."""
    for plugin in plugins:
        hook: Hook | None = getattr(plugin, moment.phase)
        if hook is None:
            continue
        waiting = hook(moment)
        if inspect.isawaitable(waiting):
            await waiting


def _own(path: str) -> str:
    """Return `path`; raise `Invalid` if a plug-in may not change it."""
    if names.reserved(path):
        raise Invalid(
            f"{path} is under a prefix that is reserved for Perdure ({', '.join(names.KERNEL_PREFIXES)}); "
            "nothing was written.",
            code="path_reserved",
            advice="Choose another path, and declare it with scope='run' if the next run should not see it.",
            path=path,
        )
    return path
