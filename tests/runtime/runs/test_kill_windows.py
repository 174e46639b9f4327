"""A process is killed in each window around an effect, and the next one goes on.

Whatever its effect, no external write is repeated and none is lost.  What may be repeated finishes by
itself; of the rest nobody knows only if the process died between the durable start and the durable
result, and a hook that can find out settles it.
"""

from __future__ import annotations

from itertools import count, product
from pathlib import Path

import pytest

from perdure.model.effect import EFFECTS
from perdure.runtime.failpoints import Point
from tests.crash.campaign import sized
from tests.runtime.runs.nursery import Nursery, nursery
from tests.runtime.runs.opened import copy_of_empty
from tests.runtime.runs.sending import CALLS, Case, go_on, go_on_without_the_rule, send_until_killed
from tests.runtime.runs.told import Told

UNCLEAR: tuple[Point, ...] = (
    "after_intent",
    "after_started",
    "during_effect",
    "after_effect",
    "while_recording",
)
WINDOWS: tuple[Point, ...] = ("before_intent", *UNCLEAR, "after_result", "after_turn")

# How often a run passes each point, with all calls in one round.
TOGETHER = {"before_intent": 2, "after_intent": 1, "after_result": CALLS - 1, "after_turn": 1}


def cases(path: Path, point: Point) -> list[Case]:
    """Every effect, idempotent or not, with a hook or not, at the moments of a window, in one round or in five.

    The long form has all of them.  The short form has one moment of each effect that is neither idempotent nor has a
    hook, and one case of another variant, which differs between neighbouring windows.
    """
    turns = count()
    found: list[Case] = []
    plain, *others = product((False, True), (False, True))
    window = WINDOWS.index(point)
    short = [*product(EFFECTS, [plain]), *product(EFFECTS[-1 - window % 3 :][:1], [others[window % 3]])]
    for effect, (idempotent, hook) in sized(short, [*product(EFFECTS, [plain, *others])]):
        moments = [(False, nth) for nth in range(1, CALLS + 1) if point != "after_result"]
        moments += [(True, nth) for nth in range(1, TOGETHER.get(point, CALLS) + 1)]
        for together, nth in sized([moments[next(turns) % len(moments)]], moments):
            case = Case(
                path=str(path / f"{len(found)}.db"),
                effect=effect,
                idempotent=idempotent,
                hook=hook,
                together=together,
                point=point,
                nth=nth,
            )
            if not (hook and case.reach.repeatable):
                found.append(case)
    return found


def faults(case: Case, told: Told, misshapen: list[str]) -> list[str]:
    """What is wrong with how a life after death ended."""
    sent, states = case.world.counted(), told.states()
    found = [*misshapen, *told.faults]
    if told.status != "succeeded" or len(told.calls) != CALLS:
        found.append(f"the run {told.status} ({told.why}) with {states}")
    if len({(deed.what, deed.key) for deed in case.world.deeds()}) > CALLS:
        found.append("a message went out under two keys")
    for number in map(str, range(CALLS)):
        found += _of_one(case, number, states.get(number, "missing"), sent[number])
    unknown = [number for number, state in states.items() if state == "unknown"]
    if not case.together and len(unknown) != (case.point in UNCLEAR and not _finishes(case)):
        found.append(f"{unknown} are unknown")
    return [f"{case}: {fault}" for fault in found]


def _of_one(case: Case, number: str, state: str, sent: int) -> list[str]:
    found: list[str] = []
    if state not in ("succeeded", "unknown"):
        found.append(f"{number} is {state}")
    if state == "unknown" and (_finishes(case) or case.point not in (*UNCLEAR, "after_result")):
        found.append(f"{number} is unknown")
    if state == "succeeded" and not sent:
        found.append(f"{number} is lost")
    if sent > 1 and not case.reach.repeatable:
        found.append(f"{number} was sent {sent} times")
    return found


def _finishes(case: Case) -> bool:
    """Whether the run finishes without anybody's help."""
    return case.reach.repeatable or case.hook


def outlived(nest: Nursery, case: Case) -> list[str]:
    """What is wrong after a process was killed as the case says and another has gone on."""
    copy_of_empty(case.path)
    nest.dies(send_until_killed, case)
    return faults(case, *nest.lives(go_on, case))


@pytest.mark.parametrize("point", WINDOWS)
def test_nothing_is_sent_twice_and_nothing_is_lost(memory_path: Path, point: Point) -> None:
    """Killed there, whatever the effect, at whichever of five calls: the next process sets it right."""
    planned = cases(memory_path, point)

    with nursery() as nest:
        found = [fault for case in planned for fault in outlived(nest, case)]

    assert planned
    assert found == []


def test_without_the_rule_messages_go_out_twice(memory_path: Path) -> None:
    """Control: where what was cut off is simply run again, the same kills repeat external writes."""
    planned = [
        case
        for case in cases(memory_path, "after_effect")
        if case.effect == "communication" and not case.idempotent and not case.hook
    ]

    with nursery() as nest:
        for case in planned:
            nest.dies(send_until_killed, case)
            nest.lives(go_on_without_the_rule, case)

    assert planned
    assert all(case.world.repeated() for case in planned)
