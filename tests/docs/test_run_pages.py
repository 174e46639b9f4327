"""The pages about runs, tools, the ledger and streams say what the code does."""

from __future__ import annotations

import inspect
import re
from typing import get_args

import msgspec
import pytest

import perdure
from perdure.ledger import call_identity, calls, decisions, effect_limit, repeat_guard, tickets
from perdure.ledger.repeat_guard import Case, Policy
from perdure.model.call import STATES, TRANSITIONS, CallRecord
from perdure.model.effect import EFFECTS
from perdure.model.run import REASONS, RUN_TRANSITIONS, STOP_KINDS, HeadPolicy
from perdure.model.ticket import DECISIONS, Ticket
from perdure.projections.calls import Transition
from perdure.providers.contract import STOP_WORDS
from perdure.runtime import events, import_messages
from perdure.runtime.agent.plugin import PHASES
from perdure.runtime.failpoints import POINTS
from perdure.runtime.session import lease, records, steering
from perdure.runtime.session.lease_keeper import TTL_SECONDS
from perdure.runtime.tools.result import PREVIEW_BYTES
from tests.docs.tables import Section, Table, codes, page, plain

ABSENT = ", may be absent"


def section(name: str, title: str) -> Section:
    """The section of a reference page with that title."""
    (found,) = [each for each in page(f"reference/{name}.md") if plain(each.title) == title]
    return found


def table(name: str, title: str, head: str) -> Table:
    """The table of a section whose first column is called `head`."""
    (found,) = [each for each in section(name, title).tables if plain(each.head[0]) == head]
    return found


def names(found: Table) -> list[str]:
    """What the first column names."""
    return [codes(row[0])[0] for row in found.rows]


# ---- runs


def test_every_reason_of_a_run_is_in_the_schedule() -> None:
    """And no other is."""
    documented = {code for row in table("runs", "The schedule", "when").rows for code in codes(row[1])}

    assert documented == set(REASONS)


def test_the_states_of_a_run_are_those_of_the_code() -> None:
    """State by state; those without a way out are not in the left column."""
    rows = table("runs", "States", "from").rows

    assert {codes(row[0])[0]: set(codes(row[1])) for row in rows} == {
        state: set(to) for state, to in RUN_TRANSITIONS.items() if to
    }


def test_phases_points_and_policies_are_those_of_the_code() -> None:
    """In the order of the code."""
    assert tuple(names(table("runs", "Phases", "phase"))) == PHASES
    assert tuple(names(table("runs", "Points", "point"))) == POINTS
    assert tuple(names(table("runs", "Head policies", "head_policy"))) == get_args(HeadPolicy)


def test_every_stop_policy_is_named() -> None:
    """Each limit that a run can have, and how many steps it has by itself."""
    text = section("runs", "Stop policies").text

    assert set(perdure.Stop.__struct_fields__) <= set(codes(text))
    assert f"({perdure.Stop().steps} unless" in text


def test_every_word_that_an_answer_ends_with_is_named() -> None:
    """Reason by reason, in the order of the code."""
    rows = table("runs", "Why an answer ended", "reason").rows

    assert tuple(codes(row[0])[0] for row in rows) == STOP_KINDS
    assert {word: codes(row[0])[0] for row in rows for word in codes(row[1])} == STOP_WORDS


def test_the_lease_lasts_as_long_as_the_page_says() -> None:
    """In seconds."""
    assert f"a lease of {TTL_SECONDS:g} seconds" in section("runs", "Lease").text


# ---- the ledger


def test_the_transitions_of_a_call_are_those_of_the_code() -> None:
    """State by state, in the order of the code."""
    first, *rows = table("ledger", "States", "from").rows

    assert (first[0], codes(first[1])) == ("nothing", sorted(TRANSITIONS[None]))
    assert names(Table(head=[], rows=rows)) == list(STATES)
    assert {codes(row[0])[0]: set(codes(row[1])) for row in rows} == {
        state: set(TRANSITIONS[state]) for state in STATES
    }


def test_the_picture_shows_every_state() -> None:
    """The drawing leaves none out."""
    drawn = section("ledger", "States").text.split("```")[1]

    assert set(STATES) <= set(re.findall(r"\w+", drawn))


def test_the_cases_and_policies_of_the_guard_are_those_of_the_code() -> None:
    """Each has its row."""
    assert tuple(names(table("ledger", "The repeat guard", "case"))) == get_args(Case)
    assert set(names(table("ledger", "The repeat guard", "repeat_guard of the tool"))) == set(
        get_args(Policy)
    )


def test_every_decision_is_described() -> None:
    """What a person can decide, and which fields of a ticket say what is asked."""
    found = section("ledger", "Tickets and decisions")

    assert tuple(names(table("ledger", "Tickets and decisions", "decision"))) == DECISIONS
    assert {code for row in found.tables[0].rows for code in codes(row[0])} <= set(Ticket.__struct_fields__)


def test_the_preview_is_as_long_as_the_pages_say() -> None:
    """In KiB, on both pages."""
    stated = f"{PREVIEW_BYTES // 1024} KiB"

    assert stated in section("ledger", "As it is stored").text
    assert stated in section("tools", "Results").text


@pytest.mark.parametrize(("head", "kind"), [(0, Transition), (1, CallRecord)], ids=["entry", "record"])
def test_stored_records_have_the_fields_that_the_page_says(head: int, kind: type[msgspec.Struct]) -> None:
    """By their names in JSON, in order, and whether they may be absent."""
    rows = section("stored-format", "Ledger").tables[head].rows

    assert [(codes(row[0])[0], row[1].endswith(ABSENT)) for row in rows] == [
        (each.encode_name, not each.required) for each in msgspec.structs.fields(kind)
    ]


def test_every_cell_of_a_run_is_in_the_stored_format() -> None:
    """By the prefix of its name."""
    documented = {name.partition("/")[0] + "/" for name in names(section("stored-format", "Cells").tables[0])}
    kept = {
        calls.CALL,
        tickets.TICKET,
        records.RUN,
        steering.STEER,
        repeat_guard.TWIN,
        call_identity.KEY,
        effect_limit.BOUND,
    }
    marks = {tickets.ASKS, tickets.ASKED, decisions.COPY, records.WAITS}
    imported = {repeat_guard.BROUGHT, import_messages.IMPORTED}

    assert {*kept, *marks, *imported, lease.LEASE, lease.RENEWAL} <= documented


# ---- tools


def test_every_option_of_a_tool_is_described_with_its_default() -> None:
    """As the decorator takes them, in order."""
    rows = table("tools", "Options", "option").rows
    options = {
        name: each.default
        for name, each in inspect.signature(perdure.tool).parameters.items()
        if each.kind is each.KEYWORD_ONLY
    }

    assert [codes(row[0])[0] for row in rows] == list(options)
    for row in rows:
        default = options[codes(row[0])[0]]
        if default is not None:
            assert codes(row[1])[0] == (f'"{default}"' if isinstance(default, str) else str(default))


def test_the_effects_are_those_of_the_code_and_mean_what_the_page_says() -> None:
    """In rising order: whether a start is durable first, what a crash leads to, and what the guard watches."""
    rows = table("tools", "Effect", "effect").rows

    assert tuple(codes(row[0])[0] for row in rows) == EFFECTS
    for row in rows:
        reach = perdure.tool(effect=codes(row[0])[0])(_nothing).reach  # pyright: ignore[reportArgumentType]
        assert (row[2] == "yes", row[3] == "runs again", row[4] == "yes") == (
            reach.writes,
            reach.repeatable,
            reach.guarded,
        )


def _nothing() -> None:
    """Do nothing."""


# ---- streams


def test_the_events_of_a_stream_are_those_of_the_code() -> None:
    """Each type with its name and its fields, in the order in which they are stored or emitted."""
    rows = table("streams", "Streams", "event").rows
    documented = {codes(row[0])[0]: codes(row[2]) for row in rows}
    kinds = {
        each.__name__: list(each.__struct_fields__)
        for union in get_args(events.Happening)
        for each in (get_args(union) or (union,))
    }

    assert documented == kinds


def test_the_names_in_a_stream_are_those_of_the_code() -> None:
    """What `type` says of each event that is no durable fact."""
    rows = table("streams", "Streams", "event").rows

    for row in rows:
        kind = getattr(events, codes(row[0])[0])
        if kind is not events.Happened:
            assert codes(row[1]) == [kind.type.fget(None)]
