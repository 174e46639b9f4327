"""How much of a conversation a backend is shown, as an agent declares it.

Agent("planner", …, context=ContextLimits(turns=20, reserve=8_000))
"""

from __future__ import annotations

from dataclasses import dataclass

from perdure.errors import Invalid

__all__ = ["ContextLimits"]

_TURNS = 12
_MEMORY = 8


@dataclass(frozen=True, kw_only=True)
class ContextLimits:
    """Limits of a context; a plain value."""

    turns: int = _TURNS  # the last turns that are shown after a switch, or once the window is outgrown
    reserve: int | None = (
        None  # tokens for the answer; None: the model's limit, at most a quarter of the window
    )
    memory: int = _MEMORY  # the most items of the owner's memory that are shown, pinned ones too; 0: none
    window: int | None = None  # tokens of request and answer; None: what the catalog, or the model, says

    def __post_init__(self) -> None:
        """Raise `Invalid` for a number out of range."""
        for name, least in (("turns", 1), ("reserve", 1), ("memory", 0), ("window", 2)):
            value: object = getattr(self, name)
            if value is None and name in ("reserve", "window"):
                continue
            if type(value) is not int or value < least:
                raise Invalid(
                    f"{name} of ContextLimits is a number from {least} on, not {value!r}; nothing was declared.",
                    code="limit_invalid",
                    field=name,
                    limit=value,
                )
        if self.reserve is not None and self.window is not None and self.reserve >= self.window:
            raise Invalid(
                f"a reserve of {self.reserve:,} tokens leaves nothing of a window of {self.window:,}; nothing was "
                "declared.",
                code="reserve_too_large",
                advice="Keep less free.",
                reserve=self.reserve,
                window=self.window,
            )
