"""Failpoints: named places in a run at which a test can kill or stop the process, or raise an error.

They do nothing unless `perdure.testing` arms one; then the test's own action happens each time that the run
gets there.  They are part of the product because recovery from a crash is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

__all__ = ["POINTS", "Point", "arm", "disarm", "hit"]

Point: TypeAlias = Literal[
    "before_intent",  # the model has requested calls; nothing of that is durable
    "after_intent",  # the request is durable
    "after_started",  # `started` is durable, the tool has not been called
    "during_effect",  # the tool is being called; a tool reaches this point itself
    "after_effect",  # the tool has returned; nothing of that is durable
    "while_recording",  # the result is handed to the store
    "after_result",  # the result is durable; the round is not committed
    "after_turn",  # the round is committed
    "before_finish",  # the last message is there; nothing of that is durable
    "after_finish",  # the run's end is durable; the caller has no result yet
    "switch_begun",  # a switch was requested; nothing was read
    "switch_settled",  # no run is on the timeline, and no call runs
    "switch_checkpointed",  # the checkpoint is derived; nothing of it is durable
    "switch_checked",  # the check is made and the policy lets it pass; nothing of it is durable
    "switch_written",  # the switch is durable; the caller has no report yet
]

POINTS: tuple[str, ...] = Point.__args__  # pyright: ignore[reportAttributeAccessIssue]

_armed: dict[str, Callable[[], None]] = {}


def arm(point: Point, action: Callable[[], None]) -> None:
    """Do `action` whenever `point` is reached, until it is disarmed."""
    _armed[point] = action


def disarm(point: Point | None = None) -> None:
    """Do nothing at `point` again; None: at all of them."""
    if point is None:
        _armed.clear()
    else:
        _armed.pop(point, None)


def hit(point: Point) -> None:
    """Do the action that is armed at `point`, if there is one."""
    if _armed and point in _armed:
        _armed[point]()
