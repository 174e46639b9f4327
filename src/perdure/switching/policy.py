"""Policy: which losses an agent accepts when another backend takes over, and which stop the switch.

    Agent("researcher", policy=Policy(block=["removed"], approve=["images"], unfinished="wait"))

The check of a switch returns a list of items, each about one topic, each kept, converted or removed.  `warn`, `approve`
and `block` name topics, or `converted` and `removed` for all topics; a topic takes precedence over a mark.  Kept items
always pass.  A policy is a plain value without I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, cast, get_args

import msgspec

from perdure.errors import Invalid
from perdure.model.canonical import prepare

__all__ = ["MARKS", "TOPICS", "AfterEffect", "EarlierCalls", "Gate", "Mark", "Policy", "Topic", "Unfinished"]

Mark: TypeAlias = Literal["kept", "converted", "removed"]
Gate: TypeAlias = Literal["pass", "warn", "approve", "block"]  # in rising order
Unfinished: TypeAlias = Literal["refuse", "wait", "approve"]
AfterEffect: TypeAlias = Literal["finish", "fail"]
EarlierCalls: TypeAlias = Literal["summary", "native"]
Topic: TypeAlias = Literal[
    "text",
    "tools",
    "mcp_tools",
    "earlier_calls",
    "context",
    "results",
    "server",
    "strict_json",
    "images",
    "documents",
    "audio",
    "video",
    "files",
    "reasoning",
    "server_tools",
    "computer_use",
    "parallel_tools",
    "tool_choice",
    "strict_tools",
    "ids",
    "options",
    "unfinished",
]

MARKS: dict[Mark, str] = {"kept": "✓", "converted": "⚠", "removed": "✗"}
TOPICS: tuple[Topic, ...] = get_args(Topic)

_GATES: tuple[Gate, ...] = get_args(Gate)
_NAMES = ("converted", "removed", *TOPICS)

# Without these the conversation cannot go on.  A policy may still let them pass.
_BLOCKED: frozenset[str] = frozenset({"text", "tools", "mcp_tools", "context"})


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which losses pass when a backend changes, and which stop the switch."""

    warn: Sequence[str] = ()  # pass, with a warning in the report
    approve: Sequence[str] = ()  # refused unless a named person approves
    block: Sequence[str] = ()  # refused
    unfinished: Unfinished = "refuse"  # if a call is under way, or its outcome is unknown
    wait_seconds: float = 30.0  # how long `wait` waits
    after_effect: AfterEffect = "finish"  # a failover once the turn has had an external effect
    earlier_calls: EarlierCalls = (
        "summary"  # how calls of another backend are shown; its own are always shown as made
    )

    def __post_init__(self) -> None:
        """Raise `Invalid` for a policy that is malformed or contradicts itself."""
        for name in ("warn", "approve", "block"):
            given: object = getattr(self, name)
            if isinstance(given, Iterable) and not isinstance(given, str):
                given = tuple(
                    cast("Iterable[Any]", given)
                )  # a list could change later, an iterator is used up
                msgspec.structs.force_setattr(self, name, given)
            _check_names(name, given)
        _check_once(self)
        _check_rising(self)
        _check_choice("unfinished", self.unfinished, get_args(Unfinished))
        _check_choice("after_effect", self.after_effect, get_args(AfterEffect))
        _check_choice("earlier_calls", self.earlier_calls, get_args(EarlierCalls))
        if not _is_seconds(self.wait_seconds):
            raise Invalid(
                f"wait_seconds is a number of seconds from 0, not {self.wait_seconds!r}; nothing was declared.",
                code="policy_seconds",
            )
        if self.unfinished == "wait" and self.wait_seconds == 0:
            raise Invalid(
                "unfinished='wait' with wait_seconds=0 waits for nothing; nothing was declared.",
                code="policy_contradiction",
                advice="Say 'refuse'.",
            )

    def gate(self, topic: Topic, mark: Mark) -> Gate:
        """Return the gate for one item of a report."""
        if mark == "kept":
            return "pass"
        return self._named(topic) or self._named(mark) or _usual(topic, mark)

    def _named(self, name: str) -> Gate | None:
        for gate in ("warn", "approve", "block"):
            if name in getattr(self, gate):
                return gate
        return None


def _usual(topic: Topic, mark: Mark) -> Gate:
    """Return the gate for an item that the policy does not name."""
    if topic == "unfinished":
        return "block"
    return "block" if mark == "removed" and topic in _BLOCKED else "warn"


def _check_names(field: str, given: object) -> None:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise Invalid(
            f"{field} of a policy is a list of topics, not {given!r}; nothing was declared.",
            code="policy_not_a_list",
            field=field,
        )
    for name in cast("Iterable[Any]", given):
        if name not in _NAMES:
            near = get_close_matches(str(name), _NAMES, n=1)
            hint = f"Did you mean '{near[0]}'?" if near else f"There are: {', '.join(_NAMES)}."
            raise Invalid(
                f"{field} of a policy names {name!r}, which is no topic of a switch; nothing was declared.",
                code="policy_topic_unknown",
                advice=hint,
                field=field,
                topic=name,
                near=tuple(near),
            )


def _check_once(policy: Policy) -> None:
    """Raise `Invalid` if a topic is in two lists."""
    found: dict[str, str] = {}
    for field in ("warn", "approve", "block"):
        for name in getattr(policy, field):
            if found.setdefault(name, field) != field:
                raise Invalid(
                    f"the policy contradicts itself: '{name}' is in {found[name]} and in {field}; nothing was "
                    "declared.",
                    code="policy_contradiction",
                    advice="Name it once.",
                    topic=name,
                )
    if policy.unfinished != "approve" and found.get("unfinished") in ("warn", "approve"):
        raise Invalid(
            f"the policy contradicts itself: 'unfinished' is in {found['unfinished']}, and "
            f"unfinished={policy.unfinished!r}; nothing was declared.",
            code="policy_contradiction",
            advice="Say unfinished='approve' instead.",
            topic="unfinished",
        )


def _check_rising(policy: Policy) -> None:
    """Raise `Invalid` if the policy is stricter with conversions than with removals, which lose more."""
    converted, removed = policy.gate("options", "converted"), policy.gate("options", "removed")
    if "options" not in (*policy.warn, *policy.approve, *policy.block) and _GATES.index(
        converted
    ) > _GATES.index(removed):
        raise Invalid(
            f"the policy contradicts itself: it says {converted} to what is converted, and {removed} to what is "
            "removed, which is the greater loss; nothing was declared.",
            code="policy_contradiction",
        )


def _check_choice(field: str, given: object, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise Invalid(
            f"{field} of a policy is {' or '.join(choices)}, not {given!r}; nothing was declared.",
            code="policy_choice_invalid",
            field=field,
        )


def _is_seconds(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given < float("inf")


prepare(Policy)
