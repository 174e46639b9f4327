"""Named points in a run at which a test can run an action of its own.

Without a test they do nothing.  `perdure.testing` arms a point; the next time that a run reaches it, the test's
action runs there: it kills or stops the process, or raises an error.  They are part of the package so that users
can test what a crash of their own agent leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

__all__ = ["POINTS", "Point", "arm", "disarm", "hit"]

Point: TypeAlias = Literal[
    "before_intent",  # the model has requested tools; nothing of that is durable
    "after_intent",  # the request is durable
    "after_started",  # `started` is durable, the tool has not been called
    "during_effect",  # the tool is being called; a tool reaches this point itself
    "after_effect",  # the tool has returned; nothing of that is durable
    "while_recording",  # the result is being written
    "after_result",  # the result is durable; the round is not committed
    "after_turn",  # the round is committed
    "before_finish",  # the last answer is complete; nothing of it is durable
    "after_finish",  # the run's end is durable; the caller has not got the result
    "switch_begun",  # a switch was requested; nothing was read
    "switch_settled",  # no run is on the line, and no call is under way
    "switch_checkpointed",  # the checkpoint is derived; nothing of it is durable
    "switch_checked",  # the policy accepts the check; nothing of it is durable
    "switch_written",  # the switch is durable; the caller has not got the result
]

POINTS: tuple[str, ...] = Point.__args__  # pyright: ignore[reportAttributeAccessIssue]

_armed: dict[str, Callable[[], None]] = {}


def arm(point: Point, action: Callable[[], None]) -> None:
    """Run `action` whenever a run reaches `point`, until it is disarmed."""
    _armed[point] = action


def disarm(point: Point | None = None) -> None:
    """Do nothing at `point` again; None: at all points."""
    if point is None:
        _armed.clear()
    else:
        _armed.pop(point, None)


def hit(point: Point) -> None:
    """Run the action that a test has armed `point` with, if there is one."""
    if _armed and point in _armed:
        _armed[point]()
