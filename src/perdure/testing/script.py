"""A scripted model: what it will say is written down before, so that an agent can be tested without a network.

    thread = store.thread("test", agent=planner.on(Script(use("book", flight="SK1"), say("Done."))))
    thread.run("Book it")

One item is one step of the model, and `Script(…, then=say("Yes?"))` goes on after the last one for ever.  Where the script stands follows from the conversation, not from
memory: a run that was killed and is resumed by another process goes on at the right place.
`crash("after_effect")` kills the process at a named point of the run, to see what is left.
"""

from __future__ import annotations

import json
import os
import signal
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, TypeAlias, cast

import msgspec

from perdure.errors import Invalid, PerdureWarning
from perdure.model.context import Context
from perdure.model.message import Message, ReasoningSummary, Text, ToolCall
from perdure.model.run import Usage
from perdure.providers.capabilities import Capability, Level
from perdure.providers.contract import CallDelta, Finished, ModelEvent, ReasoningChunk, TextChunk
from perdure.runtime import failpoints
from perdure.runtime.failpoints import POINTS, Point

__all__ = ["Crash", "Script", "ScriptStep", "crash", "fail", "say", "step", "think", "use"]


class ScriptStep(msgspec.Struct, frozen=True, kw_only=True):
    """What the model says and asks for in one step."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    error: Exception | None = None  # raised instead
    usage: Usage = Usage()
    stop: str = "end"  # the word that the answer ends with, as a backend would say it
    own: tuple[tuple[str, str], ...] = ()  # tools, each with a name that `use` took for itself


class Crash(msgspec.Struct, frozen=True, kw_only=True):
    """A point at which the process is killed."""

    point: Point
    nth: int = 1


Item: TypeAlias = ScriptStep | Crash | Callable[[Context], ScriptStep]


def say(text: str, *, usage: Usage | None = None, stop: str = "end") -> ScriptStep:
    """Say something; `usage` is what the step is said to have taken, `stop` the word that the answer ends with."""
    return ScriptStep(text=text, usage=usage or Usage(), stop=stop)


def think(text: str) -> ScriptStep:
    """Tell something of its thinking; put it into one step with words or calls by `step`."""
    return ScriptStep(reasoning=text)


def use(
    tool: str,
    given: Mapping[str, Any] | None = None,
    /,
    *,
    id: str | None = None,
    raw: str | None = None,
    usage: Usage | None = None,
    **arguments: Any,
) -> ScriptStep:
    """Ask for a tool with `arguments`, or with those that are `given` as a mapping, where any name is an argument.

    The names `id`, `raw` and `usage` are `use`'s own: `id` is what the vendor would call the call, `raw` the JSON text of
    the arguments, as it is, and `usage` what the step is said to have taken.  A tool with an argument of such a name is
    asked with `use("note", {"id": "pet"}, text="barks")`; a script warns where it may have been meant.
    """
    text = json.dumps({**(given or {}), **arguments}) if raw is None else raw
    own = {"id": id, "raw": raw, "usage": usage}
    return ScriptStep(
        calls=(ToolCall(id or f"call_{tool}", tool, text),),
        usage=usage or Usage(),
        own=tuple((tool, each) for each in own if own[each] is not None and f'"{each}"' not in text),
    )


def step(*parts: ScriptStep) -> ScriptStep:
    """Several things in one step: words, thoughts and calls side by side."""
    return ScriptStep(
        text="".join(part.text for part in parts),
        reasoning="".join(part.reasoning for part in parts),
        calls=tuple(call for part in parts for call in part.calls),
        error=next((part.error for part in parts if part.error), None),
        usage=sum((part.usage for part in parts), Usage()),
        stop=next((part.stop for part in parts if part.stop != "end"), "end"),
        own=tuple(each for part in parts for each in part.own),
    )


def fail(error: Exception | None = None) -> ScriptStep:
    """Fail, as a model that cannot be reached does."""
    return ScriptStep(error=error or ConnectionError("the scripted model cannot be reached"))


def crash(point: Point, *, nth: int = 1) -> Crash:
    """Kill this process with SIGKILL when the run reaches `point` for the nth time; armed when the script begins."""
    if point not in POINTS:
        raise Invalid(
            f"{point!r} is not a point of a run.",
            code="point_unknown",
            advice=f"Use one of {', '.join(POINTS)}.",
            point=point,
        )
    return Crash(point=point, nth=nth)


class Script:
    """A model that takes the steps that it was given, in order."""

    def __init__(
        self,
        *items: Item,
        then: ScriptStep | Callable[[Context], ScriptStep] | None = None,
        backend: str = "script:test",
        pieces: int = 3,
        lacks: Iterable[str] = (),
        window: int | None = None,
    ) -> None:
        """Take `items` one by one; words are handed out in that many pieces.

        `then` is every step after the last item; None: the script ends there.
        `lacks` are capabilities that it is said not to have, and `window` the tokens that it is said to
        take, where a switch or a route looks at that; else it is what it is named after.
        """
        for item in items if then is None else (*items, then):
            if not (isinstance(item, ScriptStep | Crash) or callable(item)):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise Invalid(
                    f"a script is made of steps, not of {item!r}.",
                    code="not_a_step",
                    advice="Use say(…), use(…), step(…), fail(…).",
                )
        self.backend, self.window = backend, window
        self._lacks = frozenset(lacks)
        for each in sorted(self._lacks - set(Capability)):
            raise Invalid(
                f"{each!r} is not a capability.",
                code="capability_unknown",
                advice=f"Use one of {', '.join(Capability)}.",
                capability=each,
            )
        self.contexts: list[Context] = []  # what it was shown, step by step
        self._steps = [item for item in items if not isinstance(item, Crash)]
        self._crashes = [item for item in items if isinstance(item, Crash)]
        self._then = then
        self._pieces = max(1, pieces)
        self._offset: int | None = None

    def supports(self, capability: str) -> Level | None:
        """`none` for what it is said to lack; None for the rest: as what it is named after."""
        return "none" if capability in self._lacks else None

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Take the next step; raises `Invalid` if there is none."""
        taken = self._next(context)
        _warn_of_own_names(taken, context)
        if taken.error is not None:
            raise taken.error
        for delta in _deltas(taken, self._pieces):
            yield delta
        content = (
            *((ReasoningSummary(taken.reasoning),) if taken.reasoning else ()),
            *((Text(taken.text),) if taken.text else ()),
        )
        yield Finished(message=Message("assistant", content, taken.calls), usage=taken.usage, stop=taken.stop)

    def _next(self, context: Context) -> ScriptStep:
        self.contexts.append(context)
        spoken = [index for index, message in enumerate(context.messages) if message.role == "assistant"]
        said = context.earlier + len(spoken)
        if self._offset is None:
            for each in self._crashes:
                failpoints.arm(each.point, _killer(each.nth))
        if (
            self._offset is None or said < self._offset
        ):  # a conversation with fewer words is another one, or was undone
            self._offset = context.earlier + _before_this_turn(context, spoken)
        place = said - self._offset
        if place >= len(self._steps) and self._then is None:
            raise Invalid(
                f"the script has {len(self._steps)} step{'' if len(self._steps) == 1 else 's'}, and the model was asked for one more.",
                code="script_ended",
                advice="Give it more steps, or one for all others: Script(…, then=say(…)).",
                steps=len(self._steps),
            )
        item = self._steps[place] if place < len(self._steps) else self._then
        assert item is not None, "a script that goes on has a step for that"
        return item if isinstance(item, ScriptStep) else item(context)


def _warn_of_own_names(taken: ScriptStep, context: Context) -> None:
    """Warn of a name that `use` took for itself where the tool has an argument of that name, which it did not get."""
    for tool, name in taken.own:
        takes = any(
            each.name == tool and name in cast("Mapping[str, Any]", each.parameters.get("properties", {}))
            for each in context.tools
        )
        if takes:
            warning = PerdureWarning(
                f"the tool '{tool}' has an argument '{name}', which it did not get: `{name}=` is what `use` itself takes.",
                code="argument_name_taken",
                advice=f'Give the argument as use("{tool}", {{"{name}": …}}).',
                tool=tool,
                name=name,
            )
            warnings.warn(warning, stacklevel=2)


def _before_this_turn(context: Context, spoken: list[int]) -> int:
    """Return how many steps were taken before the turn that is under way: they are none of the script's."""
    asked = [index for index, message in enumerate(context.messages) if message.role == "user"]
    last = asked[-1] if asked else -1
    return sum(1 for index in spoken if index < last)


def _killer(nth: int) -> Callable[[], None]:
    left = nth

    def reached() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return reached


def _deltas(taken: ScriptStep, pieces: int) -> list[ModelEvent]:
    found: list[ModelEvent] = []
    if taken.reasoning:
        found.append(ReasoningChunk(taken.reasoning))
    size = max(1, -(-len(taken.text) // pieces))
    found += [TextChunk(taken.text[start : start + size]) for start in range(0, len(taken.text), size)]
    found += [CallDelta(index, call.name, call.args) for index, call in enumerate(taken.calls)]
    return found
