"""The canonical options that Ollama says in fields of its own: the form of the answer, thinking, the choice of a tool.

Ollama has no choice of tools, and takes levels of thinking from `gpt-oss` alone: any other model is refused with
one, and is told to think or not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from perdure.providers.contract import Loss
from perdure.providers.wire.shells import object_of

__all__ = ["APART", "native_settings"]

APART = frozenset({"output", "reasoning", "tool_choice"})  # the options that are read here

_LEVELS = {
    "none": "low",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
_BUDGETS = ((1_024, "low"), (8_192, "medium"))  # the most tokens of each level


def native_settings(options: Mapping[str, Any], model: str) -> tuple[dict[str, Any], list[Loss]]:
    """The fields of a request for these options, and what they do not hold."""
    losses: list[Loss] = []
    fields: dict[str, Any] = {}
    if (wanted := _format(options.get("output"), losses)) is not None:
        fields["format"] = wanted
    reasoning = object_of(options.get("reasoning"))
    asked = {name: value for name, value in reasoning.items() if value is not None}
    has_levels = re.search(r"(^|[/_-])gpt-?oss(?![a-z])", model, re.IGNORECASE) is not None
    if asked and (think := _level(asked, losses) if has_levels else _switch(asked, losses)) is not None:
        fields["think"] = think
    if options.get("tool_choice") not in (None, "auto"):
        why = "there is no such option here: the model decides"
        losses.append(_loss("dropped", "options.tool_choice", "tool choice", why))
    return fields, losses


def _format(output: object, losses: list[Loss]) -> Any:
    if output is None or output == "json":
        return output
    asked = object_of(output)
    if not isinstance(asked.get("schema"), dict):
        why = "it is neither 'json' nor a schema"
        losses.append(_loss("dropped", "options.output", "output form", why))
        return None
    losses.extend(
        _loss("dropped", f"options.output.{name}", name, "an output's schema stands alone here")
        for name in ("name", "description", "strict")
        if asked.get(name) is not None
    )
    return asked["schema"]


def _level(asked: dict[str, Any], losses: list[Loss]) -> str | None:
    """How much a model with levels thinks; it cannot be told not to."""
    effort, budget = asked.pop("effort", None), asked.pop("budget_tokens", None)
    enabled = asked.pop("enabled", None)
    _drop(asked, losses)
    level = _LEVELS.get(str(effort))
    if effort is not None and level is None:
        why = f"'{effort}' is no level of this model"
        losses.append(_loss("dropped", "options.reasoning.effort", "reasoning effort", why))
    elif level is not None and level != effort:
        why = f"'{effort}' said as '{level}'"
        losses.append(_loss("converted", "options.reasoning.effort", "reasoning effort", why))
    if budget is not None:
        size = budget if isinstance(budget, int | float) else 0
        level = level or next((word for most, word in _BUDGETS if size <= most), "high")
        why = f"said as '{level}'"
        losses.append(_loss("converted", "options.reasoning.budget_tokens", "reasoning budget", why))
    if level is None and enabled is not None:
        level = "medium" if enabled else "low"
        why = f"said as '{level}': this model always thinks"
        losses.append(_loss("converted", "options.reasoning.enabled", "reasoning", why))
    return level


def _switch(asked: dict[str, Any], losses: list[Loss]) -> bool | None:
    """Whether a model without levels thinks."""
    effort, budget = asked.pop("effort", None), asked.pop("budget_tokens", None)
    enabled = asked.pop("enabled", None)
    _drop(asked, losses)
    why = "this model thinks or does not, with no level to choose"
    if effort not in (None, "none"):
        losses.append(_loss("converted", "options.reasoning.effort", "reasoning effort", why))
    if budget is not None:
        losses.append(_loss("converted", "options.reasoning.budget_tokens", "reasoning budget", why))
    if enabled is not None:
        return bool(enabled)
    return None if effort is None and budget is None else effort != "none" and budget != 0


def _drop(rest: dict[str, Any], losses: list[Loss]) -> None:
    losses.extend(
        _loss("dropped", f"options.reasoning.{name}", f"reasoning {name}", "there is no such option here")
        for name in rest
    )


def _loss(kind: Literal["converted", "dropped"], where: str, what: str, why: str) -> Loss:
    return Loss(kind=kind, where=where, what=what, why=why)
