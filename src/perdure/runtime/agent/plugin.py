"""Plug-ins: code that takes part in every run of an agent, at fixed phases.

A plug-in declares state of its own and hooks phases.  A hook gets a `Moment`: it may read and
write state, which is committed with the step it belongs to.  A hook that raises fails the run.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeAlias, TypeVar, overload

from msgspec import UNSET

from perdure.errors import Invalid, NotFound
from perdure.history.changes.patch_builder import Ops
from perdure.history.changes.values import Given, typed
from perdure.model import names
from perdure.model.context import Context
from perdure.model.message import Message
from perdure.runtime.agent.state import State

__all__ = ["PHASES", "Hook", "Moment", "Phase", "Plugin", "run_phase"]

Phase: TypeAlias = Literal["run_start", "before_inference", "after_inference", "step_end", "run_end"]

PHASES: tuple[Phase, ...] = ("run_start", "before_inference", "after_inference", "step_end", "run_end")

_T = TypeVar("_T")


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
