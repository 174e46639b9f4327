"""Routes: which backends may take an agent's turns, in which order, and what makes a run switch to the next.

    Agent("planner", backend="anthropic:claude-sonnet-5-5",
          route=Route(fallbacks=["openai:gpt-5.6", local], triggers=["error", "rate_limit"]))

A failover is a switch like any other: with a checkpoint, a check, a recorded reason.  A route is a plain value without
I/O.  Its triggers are:

    error         the backend cannot be reached, breaks off, does not exist any more or refuses access
    rate_limit    the backend limits the rate of requests
    context       the conversation is too long for it, or is known not to fit
    capability    it cannot be shown what the conversation has, or rejects the request
    budget        the run has used its tokens for this backend
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

from perdure.errors import Invalid, NotFound, PerdureError, Unavailable, Unsupported
from perdure.model.context import Context
from perdure.model.message import File, Image
from perdure.providers import registry
from perdure.providers.capabilities import Capability
from perdure.providers.profile import MEDIA, BackendProfile, BackendRef, check_backend, name_of
from perdure.providers.transport.errors import (
    AccessRefused,
    ContentRefused,
    ContextTooLong,
    RateLimited,
    RequestRejected,
)
from perdure.providers.wire.media import kind_of
from perdure.providers.wire.server_tools import is_account

__all__ = ["Route", "Trigger", "lacking", "needs", "trigger_of"]


Trigger: TypeAlias = Literal["error", "rate_limit", "context", "capability", "budget"]

TRIGGERS: tuple[Trigger, ...] = get_args(Trigger)

_USUAL: tuple[Trigger, ...] = ("error", "rate_limit", "context", "capability")


@dataclass(frozen=True)
class Route:
    """The backends that may take an agent's turns, and when the next one does."""

    fallbacks: Sequence[BackendRef] = ()  # in this order
    _: KW_ONLY
    primary: BackendRef | None = None  # None: the agent's backend
    requires: Sequence[str] = ()  # capabilities; a backend that lacks one of them is skipped
    triggers: Sequence[Trigger] = _USUAL
    budget_tokens: int | None = None  # tokens that one run may use on one backend; None: no limit

    def __post_init__(self) -> None:
        """Raise `Invalid` for a route that is malformed or contradicts itself."""
        for field in ("fallbacks", "requires", "triggers"):
            object.__setattr__(self, field, _listed(field, getattr(self, field)))
        for given in (*self.fallbacks, *(() if self.primary is None else (self.primary,))):
            check_backend(given)
            _check_provider(given)
        _check_names("requires", self.requires, [each.value for each in Capability])
        _check_names("triggers", self.triggers, TRIGGERS)
        _check_backends(self)
        _check_budget(self)

    def order(self, backend: BackendRef | None) -> tuple[BackendRef, ...]:
        """Return all backends in order; `backend` is the agent's own."""
        first = backend if self.primary is None else self.primary
        return (*(() if first is None else (first,)), *self.fallbacks)

    def after(self, name: str, backend: BackendRef | None, *, tried: Iterable[str]) -> Iterator[BackendRef]:
        """Yield the backends that may take over from the one of that name: those after it, then those before it."""
        found = self.order(backend)
        names = [name_of(each) for each in found]
        at = names.index(name) + 1 if name in names else 0
        left = frozenset((*tried, name))
        return (each for each in (*found[at:], *found[:at]) if name_of(each) not in left)


def _check_provider(given: BackendRef) -> None:
    """Raise `Invalid` for an unknown provider; a name without a provider may be in the user's own catalog."""
    if not isinstance(given, str) or ":" not in given:
        return
    try:
        registry.target(given)
    except (NotFound, Invalid) as error:
        raise Invalid(
            f"the route names {given!r}; nothing was declared: {error.message}",
            code="route_backend_unknown",
            advice=error.advice,
            backend=given,
        ) from error


def _listed(field: str, given: object) -> tuple[Any, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise Invalid(
            f"{field} of a route is a list, not {given!r}; nothing was declared.",
            code="route_not_a_list",
            field=field,
        )
    return tuple(cast("Iterable[Any]", given))


def _check_names(field: str, given: Sequence[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise Invalid(
                f"{field} of a route names {name!r}; nothing was declared.",
                code="route_name_unknown",
                advice=f"There are: {', '.join(known)}.",
                field=field,
                name=name,
            )


def _check_backends(route: Route) -> None:
    names = [name_of(each) for each in route.order(None)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Invalid(
            f"the route contradicts itself: {', '.join(twice)} is in it twice; nothing was declared.",
            code="route_contradiction",
            backends=tuple(twice),
        )
    if not route.fallbacks:
        raise Invalid(
            "a route needs a fallback; nothing was declared.",
            code="route_without_fallback",
            advice="Name one, or give no route.",
        )


def _check_budget(route: Route) -> None:
    most = route.budget_tokens
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most <= 0):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"budget_tokens is a number of tokens above 0, not {most!r}; nothing was declared.",
            code="route_budget",
        )
    if ("budget" in route.triggers) != (most is not None):
        raise Invalid(
            "the route contradicts itself: the trigger 'budget' and budget_tokens= belong together; nothing was declared.",
            code="route_contradiction",
        )


def trigger_of(error: BaseException) -> Trigger | None:
    """Return the trigger of a step's error; None: another backend would not help."""
    match error:
        case RateLimited():
            return "rate_limit"
        case ContextTooLong():
            return "context"
        case ContentRefused():
            return None  # a switch must not be a way around a content policy
        case RequestRejected() | Unsupported():
            return "capability"
        case Unavailable() | AccessRefused() | NotFound() | Invalid():
            return "error"
        case PerdureError():
            return None
        case Exception():
            return "error"  # a model object of the program may raise anything
        case _:
            return None


def needs(context: Context) -> frozenset[Capability]:
    """Return the capabilities that a backend needs for this context, apart from text."""
    found: set[Capability] = set()
    for message in context.messages:
        for block in message.content:
            if isinstance(block, Image):
                found.add(Capability.IMAGES)
            elif isinstance(block, File) and not is_account(block):
                found.add(MEDIA.get(kind_of(block.mime_type, block.uri), Capability.DOCUMENTS))
    if context.tools:
        found.add(Capability.TOOLS)
    return frozenset(found)


def lacking(backend_profile: BackendProfile, wanted: Iterable[Capability | str]) -> tuple[str, ...]:
    """Return those of the wanted capabilities that a backend does not have at all."""
    return tuple(str(each) for each in wanted if backend_profile.does(Capability(each)) == "none")
