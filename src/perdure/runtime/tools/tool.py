"""Declares tools: plain functions, with what Perdure has to know about them.

    @perdure.tool(effect="external_write", key="booking-{flight}")
    def book(flight: str, price: int, call: Call) -> str: ...

    @book.reconcile
    def find_booking(call: Call) -> Outcome: ...

A declaration is a value without I/O; a wrong one is refused where it is made.  A tool that does not declare
its effect counts as an `external_write`: Perdure never runs it twice by itself.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar, cast, get_args, overload

import msgspec

from perdure.errors import Invalid
from perdure.ledger.call_identity import check_template
from perdure.ledger.json_schema import checkable
from perdure.model.canonical import Json
from perdure.model.context import VENDOR_TOOLS, ToolSpec, VendorTool
from perdure.model.effect import Effect, Reach, check_effect
from perdure.model.names import check_label
from perdure.runtime.tools.call import Call
from perdure.runtime.tools.signature import Arguments, FunctionSignature, read

__all__ = [
    "Ask",
    "FunctionTool",
    "KeyScope",
    "Reconciler",
    "RepeatGuard",
    "Retry",
    "Tool",
    "check_tool_name",
    "is_async",
    "tool",
]

P = ParamSpec("P")
R = TypeVar("R")
_Hook = TypeVar("_Hook", bound=Callable[[Call], Any])

RepeatGuard: TypeAlias = Literal["ask", "allow", "deny"]
KeyScope: TypeAlias = Literal["thread", "store"]
Ask: TypeAlias = bool | Callable[[Call], object]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,127}\Z")


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often a call that may be repeated is attempted, and how long to wait between attempts."""

    attempts: int = 3  # in all
    delay: float = 0.5  # seconds before the second attempt
    factor: float = 2.0  # how much longer each further wait is

    def wait(self, attempt: int) -> float:
        """Return the seconds to wait after attempt number `attempt`; the first is 1."""
        return self.delay * self.factor ** (attempt - 1)


class Reconciler(msgspec.Struct, frozen=True):
    """The hook that is asked whether a call was done."""

    function: Callable[[Call], Any]
    fences: bool = False  # after its not_done the old attempt can do nothing any more


class Tool(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A function that a model can call, and what was declared about it.

    Python code can still call it like the function that it was made from.
    """

    name: str
    description: str
    parameters: Mapping[str, Json]  # a JSON schema of an object
    function: Callable[..., Any]
    take: Callable[[dict[str, Json]], Arguments]  # raises `Invalid`
    run: Callable[[Arguments, Call], Any]  # returns a result, or an awaitable of one
    runs_async: bool = False
    reach: Reach = Reach()
    declared: bool = True  # False: the effect was not declared, only assumed
    key: str | None = None  # a template; None: thread and call make the key
    key_scope: KeyScope = "thread"
    key_lifetime: timedelta | None = None  # None: the key never expires
    timeout: float | None = None  # seconds; None: no limit
    retry: Retry | None = None
    ask: Ask = False
    version: str | None = None
    repeat_guard: RepeatGuard = "ask"
    serves: VendorTool | None = None  # the vendor's own tool that it implements; None: it is a plain function
    origin: Literal["code", "mcp"] = "code"  # the program, or an MCP server
    hooks: list[Reconciler] = []  # at most one; declared after the tool

    def __post_init__(self) -> None:
        """Check the declaration; raises `Invalid`."""
        _check(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function directly: no ledger, no validation, no state."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        """Name the tool and its effect."""
        return f"<Tool {self.name}, {self.reach.effect}{', idempotent' if self.reach.idempotent else ''}>"

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The function, for `inspect.signature`."""
        return self.function

    @property
    def arguments_schema(self) -> str | None:
        """The JSON schema of its arguments, to check them without the tool; None where the schema cannot be checked."""
        return checkable(self.spec.parameters)

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model is shown it."""
        return ToolSpec(
            name=self.name, description=self.description, parameters=self.parameters, serves=self.serves
        )

    @property
    def reconciler(self) -> Reconciler | None:
        """The hook that is asked when the outcome of a call is not known; None: only a person can say."""
        return self.hooks[0] if self.hooks else None

    def validated(self, raw: str) -> Arguments:
        """Return the arguments that the JSON text `raw` holds; raises `Invalid` with words for a model."""
        return self.take(read(self.name, raw))

    def asks(self, call: Call) -> bool:
        """True if a person has to approve this call first, also if the tool's own `ask` raises."""
        if isinstance(self.ask, bool):
            return self.ask
        try:
            return bool(self.ask(call))
        except Exception:  # noqa: BLE001  # the tool author's code: if it cannot decide, a person does
            return True

    @overload
    def reconcile(self, hook: _Hook) -> _Hook: ...
    @overload
    def reconcile(self, *, fences: bool = False) -> Callable[[_Hook], _Hook]: ...
    def reconcile(self, hook: Any = None, *, fences: bool = False) -> Any:
        """Declare the function that finds out whether a call was done: `call.done(…)`, `not_done()` or `dont_know()`.

        `fences` says that after its `not_done` an old attempt can do nothing any more.
        """

        def declare(hook: _Hook) -> _Hook:
            if not callable(hook):
                raise _wrong(self.name, "reconcile", f"reconcile takes a function, not {hook!r}")
            if self.reconciler is not None:
                raise _wrong(self.name, "reconcile", "it has a reconcile hook already")
            self.hooks.append(Reconciler(hook, fences))
            return hook

        return declare if hook is None else declare(hook)


class FunctionTool(Tool, Generic[P, R], frozen=True, kw_only=True, eq=False):
    """A tool made from a function; type checkers see the signature of that function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function directly: no ledger, no validation, no state."""
        return cast("R", self.function(*args, **kwargs))


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect | None = None,
    idempotent: bool = False,
    key: str | None = None,
    key_scope: KeyScope = "thread",
    key_lifetime: timedelta | float | None = None,
    timeout: float | None = None,
    retry: Retry | int | None = None,
    ask: Ask = False,
    version: str | None = None,
    repeat_guard: RepeatGuard = "ask",
    serves: VendorTool | None = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect | None = None,
    idempotent: bool = False,
    key: str | None = None,
    key_scope: KeyScope = "thread",
    key_lifetime: timedelta | float | None = None,
    timeout: float | None = None,
    retry: Retry | int | None = None,
    ask: Ask = False,
    version: str | None = None,
    repeat_guard: RepeatGuard = "ask",
    serves: VendorTool | None = None,
) -> Any:
    """Declare a function as a tool; its docstring is the description that a model is shown.

    `effect` says what it may change, `idempotent` that the same key may be used again safely.
    `key` is a template filled from the arguments; `key_lifetime` and `timeout` are in seconds.
    `serves` names the vendor's own tool that it implements, such as `openai.shell`.
    Raises `Invalid`, having declared nothing, if a part of the declaration is wrong.
    """
    options: dict[str, Any] = {
        "reach": Reach("external_write" if effect is None else check_effect(effect), idempotent),
        "declared": effect is not None,
        "key": key,
        "key_scope": key_scope,
        "key_lifetime": _lifetime(key_lifetime),
        "timeout": timeout,
        "retry": Retry(attempts=retry) if type(retry) is int else retry,
        "ask": ask,
        "version": version,
        "repeat_guard": repeat_guard,
        "serves": serves,
    }
    if function is not None:
        return _declared(function, name, description, _names_around(), options)

    def declare(function: Callable[P, R]) -> FunctionTool[P, R]:
        return _declared(function, name, description, _names_around(), options)

    return declare


def _names_around() -> Mapping[str, object]:
    """Return the local names at the declaration: hints may use them."""
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame and frame.f_back
    return frame.f_locals if frame else {}


def is_async(function: Callable[..., object]) -> bool:
    """True if calling `function` returns an awaitable."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(function.__call__)


def check_tool_name(name: str) -> str:
    """Return `name` if a declared tool can have it; raises `Invalid`."""
    if not isinstance(name, str) or not _NAME.match(name):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"{ascii(name)[:160]} is not the name of a tool: use a letter of a-z or A-Z or '_', then up to 127 of them, digits, "
            "'_', '.', '/', '-'; nothing was declared.",
            code="tool_name_invalid",
            advice="Give one with name=…",
            name=name,
        )
    return name


def _declared(
    function: Callable[..., Any],
    name: str | None,
    description: str | None,
    names: Mapping[str, object],
    options: dict[str, Any],
) -> FunctionTool[..., Any]:
    if not callable(function):
        raise Invalid(
            f"a tool is made from a function, not from {function!r}; nothing was declared.",
            code="tool_is_no_function",
        )
    name = check_tool_name(getattr(function, "__name__", "") if name is None else name)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise _wrong(name, "function", "it is a generator, whose code would not run when it is called")
    signature = FunctionSignature.of(name, function, names)
    return FunctionTool(
        name=name,
        description=(inspect.getdoc(function) or "") if description is None else description,
        parameters=signature.schema,
        function=function,
        take=signature.take,
        run=_runner(function, signature.call),
        runs_async=is_async(function),
        **options,
    )


def _runner(function: Callable[..., Any], parameter: str | None) -> Callable[[Arguments, Call], Any]:
    if parameter is None:
        return lambda arguments, _: function(**arguments.values)
    return lambda arguments, call: function(**arguments.values, **{parameter: call})


def _lifetime(given: timedelta | float | None) -> timedelta | None:
    return given if given is None or isinstance(given, timedelta) else timedelta(seconds=given)


def _check(tool: Tool) -> None:
    check_tool_name(tool.name)
    _check_choice(tool, "key_scope", tool.key_scope, get_args(KeyScope))
    _check_choice(tool, "repeat_guard", tool.repeat_guard, get_args(RepeatGuard))
    if tool.serves is not None:
        _check_choice(tool, "serves", tool.serves, VENDOR_TOOLS)
    if tool.version is not None:
        check_label("tool version", tool.version)
    if tool.timeout is not None and not (isinstance(tool.timeout, int | float) and tool.timeout > 0):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _wrong(tool.name, "timeout", f"a timeout is a number of seconds above 0, not {tool.timeout}")
    if tool.key_lifetime is not None and tool.key_lifetime <= timedelta(0):
        raise _wrong(tool.name, "key_lifetime", "a key's lifetime is above 0")
    _check_ask(tool)
    _check_key(tool)
    _check_retry(tool)


def _check_choice(tool: Tool, what: str, given: object, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise _wrong(tool.name, what, f"{what} is one of {', '.join(choices)}, not {given!r}")


def _check_ask(tool: Tool) -> None:
    if not isinstance(tool.ask, bool) and (not callable(tool.ask) or is_async(tool.ask)):
        raise _wrong(tool.name, "ask", "ask is True, False or a plain function of the call")


def _check_key(tool: Tool) -> None:
    if tool.key is None:
        if tool.key_scope == "store":
            raise _wrong(
                tool.name,
                "key_scope",
                "key_scope='store' needs a key that means the same in every thread: give key=…",
            )
        return
    known = cast("Mapping[str, Json]", tool.parameters.get("properties") or {})
    for field in sorted(check_template(tool.key) - set(known)):
        raise _wrong(
            tool.name, "key", f"the key {tool.key!r} names {field!r}, which is not one of its arguments"
        )


def _check_retry(tool: Tool) -> None:
    retry = tool.retry
    if retry is None:
        return
    if not isinstance(retry, Retry):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _wrong(tool.name, "retry", f"retry is a Retry or a number of attempts, not {retry!r}")
    if retry.attempts < 1 or retry.delay < 0 or retry.factor < 0:
        raise _wrong(tool.name, "retry", f"{retry} is not possible")
    if retry.attempts > 1 and not tool.reach.repeatable:
        raise _wrong(
            tool.name,
            "retry",
            f"it reaches as far as {tool.reach.effect} and is not idempotent, so it is never repeated by itself: "
            "retry needs an effect below local_write, or idempotent=True",
        )


def _wrong(name: str, option: str, what: str) -> Invalid:
    return Invalid(
        f"the tool {name!r} cannot be declared: {what}; nothing was declared.",
        code="tool_option_invalid",
        tool=name,
        option=option,
    )
