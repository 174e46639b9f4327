"""Switches a timeline to another backend, from the question to the one commit.

    freeze          no run is on the timeline, and none begins before the switch is written
    settle          what commits left to be done is done; unfinished calls are waited for, or in the way
    checkpoint      derived from the head of the timeline, and from the ledger as it is now
    check, policy   what is kept, converted and removed there, and whether the agent's policy lets that pass
    commit          checkpoint, report and switch in one write, which also moves the lease's revision

Nothing is durable before that write; so if the process is killed, the timeline is switched or it is not.
A run that has read the timeline before the write begins again; a run that began first is in the way.

A hand-off to another agent is one commit as well: it records who had the conversation and who has it next, refers to
the next agent's map as it is now, and is a switch too if that agent has another backend.  Runs keep the tools of
the agent that began them, so a run that has not ended is in the way.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from importlib.util import find_spec
from itertools import islice
from typing import Any

import msgspec

from perdure.engines.contract import CellWrite
from perdure.engines.loops import Attempts
from perdure.errors import Conflict, Invalid, Moved, NotFound, Refused, StaleHead
from perdure.history import reader, writer
from perdure.history.reader import agents_in, agents_question, agents_write, check_agent
from perdure.history.space import Space, removed
from perdure.history.writer import Proposal
from perdure.ledger import snapshot
from perdure.ledger.held import check_released
from perdure.model import canonical, names
from perdure.model.checkpoint import Checkpoint
from perdure.model.commit import NO_READS, LedgerRead, Reads
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.event import AgentHandedOff, BackendSwitched, RunStarted
from perdure.model.head import MAIN, Head
from perdure.providers import registry
from perdure.providers.backend import Backend
from perdure.providers.contract import Model, server_of
from perdure.providers.profile import (
    BackendProfile,
    BackendRef,
    backend_profile,
    check_backend,
    check_model,
    name_of,
)
from perdure.providers.transport.address import UNRESOLVED, address_for, is_vendor
from perdure.providers.transport.registry import missing
from perdure.runtime import failpoints
from perdure.runtime.agent.agent import taking_steps
from perdure.runtime.event_loop import drive
from perdure.runtime.inference.backend import check_server_on_record, given_as, is_on
from perdure.runtime.inference.model_input import agent_view, is_bare
from perdure.runtime.session import lease as leases
from perdure.runtime.session import records
from perdure.runtime.session.environment import RunEnvironment
from perdure.switching import compatibility
from perdure.switching.checkpoint.derive import derive, recalling
from perdure.switching.checkpoint.summary import summarised
from perdure.switching.commit import (
    REASON,
    gated,
    intent,
    report_at,
    server_items,
    switched,
    unfinished,
    unfinished_items,
)
from perdure.switching.current_backend import RecordedBackend
from perdure.switching.report import Report, refusal
from perdure.switching.target_context import last_frame, shown_to

__all__ = [
    "HANDED_OFF",
    "HandOff",
    "SwitchRequest",
    "check",
    "check_taken",
    "found",
    "ledger_now",
    "reported",
    "switch",
]

_log = logging.getLogger("perdure.backends")

HANDED_OFF = "agent_handed_off"  # the reason of the commit
_SUMMARIES_MAX = 2  # times that a model writes a summary, where the timeline changes before it is done
_REASON_MAX = 2_000  # characters
_STEPS_MAX = 400  # commits that are searched for a server under a name

_SDKS: Mapping[str, tuple[str, str, str]] = {  # the module, its package, our extra
    "openai-chat": ("openai", "openai", "openai"),
    "openai-responses": ("openai", "openai", "openai"),
    "anthropic-messages": ("anthropic", "anthropic", "anthropic"),
    "gemini-generate": ("google.genai", "google-genai", "google"),
    "bedrock-converse": ("boto3", "boto3", "bedrock"),
    "mistral-chat": ("mistralai", "mistralai", "mistral"),
    "azure-inference-chat": ("openai", "openai", "foundry"),
    "ollama-chat": ("openai", "openai", "openai"),
    "gemini-interactions": ("google.genai", "google-genai", "google"),
}


class HandOff(msgspec.Struct, frozen=True):
    """What a commit writes that hands the timeline off to another agent."""

    event: AgentHandedOff
    cell: CellWrite
    reads: Reads  # of the next agent's map
    intent: Digest


class SwitchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A switch as the caller requests it."""

    to: BackendRef
    reason: str | None = None
    approved_by: str | None = None
    output: Any = None  # the type of the last message of runs; None: text
    summariser: BackendRef | None = None  # writes a summary into the checkpoint; None: there is none
    op_id: str | None = None
    hand_off: HandOff | None = None  # made by the same commit

    def __post_init__(self) -> None:
        """Raise `Invalid` for a text that cannot be recorded."""
        for name, text in (("reason", self.reason), ("approved_by", self.approved_by)):
            if text is not None and (not isinstance(text, str) or not text or len(text) > _REASON_MAX):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise Invalid(
                    f"{name} of a switch is 1 to {_REASON_MAX} characters, not {text!r}; nothing was done.",
                    code="switch_text_invalid",
                    field=name,
                )
            canonical.encode(text)
        if self.op_id is not None:
            names.check_id("op_id", self.op_id)
        if self.summariser is not None:
            check_backend(self.summariser)
        if self.output is not None:
            _check_type(self.output)


def _check_type(output: object) -> None:
    try:
        msgspec.json.schema(output)
    except (TypeError, ValueError, NameError) as error:
        raise Invalid(
            f"output is a type, not {output!r}: {error}; nothing was done.", code="output_type_invalid"
        ) from error


def found(env: RunEnvironment, given: BackendRef) -> BackendProfile:
    """Return what is known of the backend that is to take over; raise if nothing could take its steps."""
    seen = backend_profile(given, env.models())
    if not isinstance(given, str | Backend):
        return seen
    check_model(given, seen, env.models(), undone="nothing was switched")
    taking_steps(given)
    return seen


def check_taken(given: BackendRef, seen: BackendProfile) -> None:
    """Raise `Unsupported` if the package is missing that sends to the backend."""
    if not isinstance(given, str | Backend) or seen.target is None:
        return
    sdk = _SDKS.get(seen.target.api)
    if sdk is None or (isinstance(given, Backend) and given.client is not None):
        return
    if not _is_installed(sdk[0]):
        raise missing(seen.name, sdk[1], sdk[2])


def check(env: RunEnvironment, asked: SwitchRequest) -> Report:
    """Report what a switch would keep, convert and remove, and what the policy says; write nothing."""
    asked = _resolved(env, asked)
    to = found(env, asked.to)
    head = reader.head_of(env.space, env.timeline)
    ledger = ledger_now(env.space, head)
    report = reported(env, asked, to, head, ledger)
    if _is_on_target(env, report):
        return _with_nothing_done(report)
    refused = _server_not_named(env, asked, report, head)
    if refused is None:
        return report
    # Nothing is sent, so the check is made, for the server that the name leads to.
    note = f"{refused.message.rstrip('.')}, so the switch itself has to say which server it means"
    return msgspec.structs.replace(report, notes=(*report.notes, note))


def switch(env: RunEnvironment, asked: SwitchRequest) -> Report:
    """Let another backend take the steps from here on.

    Raises `Refused` with the report if the policy does not let it pass, `Busy` if a run is on the
    timeline; then nothing was written.  The same op_id again returns the first report.
    """
    failpoints.hit("switch_begun")
    asked = _resolved(env, asked)
    to = found(env, asked.to)
    check_taken(asked.to, to)
    server = server_of(taking_steps(asked.to))
    summariser = None if asked.summariser is None else taking_steps(asked.summariser)
    env.finish()
    attempts = Attempts(f"timeline '{env.timeline}'", f"the backend of '{env.space.label}' was not switched")
    summaries_left = _SUMMARIES_MAX
    while True:
        attempts.begin()
        earlier = _earlier(env, asked, to, server)
        if earlier is not None:
            return earlier
        free = leases.check_free(env.space, env.timeline, "switch", owners=env.owners)
        head = reader.head_to_move(env.space, env.timeline)
        ledger = _settled(env, head)
        failpoints.hit("switch_settled")
        report = reported(env, asked, to, head, ledger)
        if _is_on_target(env, report):
            return _with_nothing_done(report)
        if (unnamed := _server_not_named(env, asked, report, head)) is not None:
            raise unnamed
        if not report.ok:
            raise refusal(report)
        if summariser is not None:
            check_server_on_record(env, head.commit, summariser)
            report = _summarised(env, report, summariser, is_allowed=summaries_left > 0)
            summaries_left -= 1
        failpoints.hit("switch_checked")
        bump = CellWrite(name=free.cell, expected=free.revision, value=None)
        made = _written(env, asked, report, head, ledger, bump)
        if made is not None:
            failpoints.hit("switch_written")
            recorded = RecordedBackend(to.name, server)
            env.lines.note(env.space, env.timeline, made.commit, recorded)
            _log.info("%s on %s switched to %s", env.space.label, env.timeline, to.name)
            return made


def reported(
    env: RunEnvironment,
    asked: SwitchRequest,
    to: BackendProfile,
    head: Head,
    ledger: LedgerRead,
    *,
    before: RecordedBackend | None = None,
    inside: bool = False,
) -> Report:
    """Report what is kept, converted and removed of the conversation at `head` if `to` takes over.

    `before` is the backend that has it; None: as the history says.  `inside` a run, its own open calls are
    not in the way.
    """
    space, agent = env.space, env.agent
    if before is None:
        before = env.lines.backend(space, head.timeline, head.commit)
    if before is None and agent.backend is not None:
        before = RecordedBackend(name_of(agent.backend), server_of(taking_steps(agent.backend)))
    name = None if before is None else before.name
    going = RecordedBackend(to.name, server_of(taking_steps(asked.to)))
    checkpoint = derive(
        space,
        head.commit,
        to_backend=to.name,
        from_backend=name,
        ledger=ledger,
        timeline=head.timeline,
        recall=recalling(env.memory, space.name, head.commit),
    )
    failpoints.hit("switch_checkpointed")
    view = agent_view(env, shape=asked.output)
    shown = shown_to(view, to, head.commit, checkpoint, before=name)
    lost = compatibility.losses(shown, to, inside=inside)
    left = () if inside else unfinished(space, head, ledger)
    checked = compatibility.check(shown, to, lost)
    items = (*checked, *server_items(before, going), *unfinished_items(left))
    report = Report(
        thread=space.label,
        timeline=head.timeline,
        from_backend=name,
        to_backend=to.name,
        from_server=None if before is None else before.server,
        to_server=going.server,
        items=items,
        losses=lost,
        notes=_notes(env, to, checkpoint, sealed=compatibility.sealed(shown, to)),
        checkpoint=checkpoint,
        approved_by=asked.approved_by,
        reason=asked.reason,
    )
    return gated(report, agent.policy)


def _summarised(env: RunEnvironment, report: Report, summariser: Model, *, is_allowed: bool) -> Report:
    """Return the report with a model's summary in its checkpoint if the summary is valid, else with a note why not."""
    checkpoint = report.checkpoint
    assert checkpoint is not None, "a report is made with its checkpoint"
    if not is_allowed:
        note = f"the summary by {summariser.backend} was left out: the timeline changed each time that it was made"
        return msgspec.structs.replace(report, notes=(*report.notes, note))
    with_summary = drive(summarised(env.space, checkpoint, summariser))
    new = with_summary.validation.notes[len(checkpoint.validation.notes) :]
    return msgspec.structs.replace(report, checkpoint=with_summary, notes=(*report.notes, *new))


def _settled(env: RunEnvironment, head: Head) -> LedgerRead:
    """Return the position of the ledger; with the policy `wait`, once no call runs or the time is up."""
    space, policy = env.space, env.agent.policy
    until = time.monotonic() + policy.wait_seconds
    ledger = ledger_now(space, head)
    seen = -1
    while policy.unfinished == "wait" and unfinished(space, head, ledger) and time.monotonic() < until:
        news = space.engine.wait({space.name: seen}, until - time.monotonic())
        seen = news.get(space.name, seen)
        ledger = ledger_now(space, head)
    return ledger


def ledger_now(space: Space, head: Head) -> LedgerRead:
    """Return the position of the ledger now, which is not before the one that `head` has read."""
    since = LedgerRead() if head.commit is None else space.step(head.commit).commit.ledger
    return snapshot.now(space, since=since)


def _written(
    env: RunEnvironment,
    asked: SwitchRequest,
    report: Report,
    head: Head,
    ledger: LedgerRead,
    bump: CellWrite,
) -> Report | None:
    """Write the switch and return its report; None if the timeline has changed and all must be checked again."""
    space, checkpoint = env.space, report.checkpoint
    assert checkpoint is not None, "a report is made with its checkpoint"
    holds = switched(report, checkpoint, space.ids)
    handed = asked.hand_off
    events = holds.events if handed is None else (handed.event, *holds.events)
    proposal = Proposal(
        reason=REASON if handed is None else HANDED_OFF,
        root=space.root_at(head.commit),
        events=events,
        minted=frozenset(event.id for event in events),
        objects=holds.objects,
        cells=(bump,) if handed is None else (bump, handed.cell),
        outside=env.standing.sight(head).reads if handed is None else handed.reads,
        ledger=ledger,
        author=asked.approved_by,
    )
    meant = None if asked.op_id is None else intent(report) if handed is None else handed.intent
    op_id = asked.op_id or space.ids()
    try:
        done = writer.commit(space, head, proposal, op_id=op_id, intent=meant)
    except StaleHead:
        if removed(space):
            raise
        return None
    except Moved as moved:
        if moved.cell != bump.name:
            raise
        return None
    return msgspec.structs.replace(report, commit=done.head.commit)


def _resolved(env: RunEnvironment, asked: SwitchRequest) -> SwitchRequest:
    """Return the request with names replaced by the objects that were given under them, which know their servers."""
    summariser = None if asked.summariser is None else given_as(env, asked.summariser)
    return msgspec.structs.replace(asked, to=given_as(env, asked.to), summariser=summariser)


def _server_not_named(
    env: RunEnvironment, asked: SwitchRequest, report: Report, head: Head
) -> Refused | None:
    """Return the error if a name alone would take the conversation away from a server that a program gave; else None.

    A name without an address means the vendor's own.  From one vendor to another the names say where it goes, and the
    agent of a hand-off has its backend declared with it.
    """
    before, recorded, resolved = report.from_backend, report.from_server, report.to_server
    if not isinstance(asked.to, str) or before is None or recorded in (None, UNRESOLVED, resolved):
        return None
    is_said = is_vendor(recorded) or asked.hand_off is not None
    if is_said and _provider_of(before) != _provider_of(report.to_backend):
        return None
    known = _known_server(env.space, head.commit, report.to_backend)
    earlier = (
        f" Before, {report.to_backend} was at {known}." if known not in (None, recorded, resolved) else ""
    )
    return Refused(
        f"'{report.thread}' is on {before} at {recorded}, and {report.to_backend} without an address is at "
        f"{resolved}.{earlier}",
        code="server_not_named",
        advice=f"Say which server you mean: Backend('{report.to_backend}', base_url=…) is the one at that address, "
        f"Backend('{report.to_backend}') the one that the name leads to.",
        thread=report.thread,
        backend=report.to_backend,
        recorded=recorded,
        resolved=resolved,
        known=known,
        back=f"To go back to {known}, add {_option(asked, known)}. " if earlier and known else "",
        stay=_option(asked, address_for(_api_of(report.to_backend), recorded, of=_api_of(before))),
        leave=_option(asked, resolved or ""),
    )


def _known_server(space: Space, at: Digest | None, backend: str) -> str | None:
    """Return the server at which the history last had a backend of that name; None: it had none, or long ago."""
    for step in islice(reader.recent(space, at), _STEPS_MAX):
        for event in reversed(step.changeset.events):
            match event:
                case BackendSwitched(to_backend=name, to_server=str(server)) if name == backend:
                    return server
                case BackendSwitched(from_backend=name, from_server=str(server)) if name == backend:
                    return server
                case RunStarted(backend=name, server=str(server)) if name == backend:
                    return server
                case _:
                    pass
    return None


def _option(asked: SwitchRequest, server: str) -> str:
    """Return the option of a command that names that server; a hand-off and a server without an address need code."""
    if asked.hand_off is None and "://" in server:
        return f"--base-url {server}"
    return "--code MODULE:NAME for code whose Backend leads there"


def _api_of(backend: str) -> str:
    try:
        return registry.target(backend).api
    except (Invalid, NotFound):  # a model of the program's own
        return ""


def _provider_of(backend: str) -> str:
    try:
        return registry.target(backend).provider
    except (Invalid, NotFound):  # a model of the program's own
        return backend.partition(":")[0]


def _is_on_target(env: RunEnvironment, report: Report) -> bool:
    """True if the timeline is already on that backend, at that server."""
    before = report.from_backend
    return (
        before is not None
        and is_on(env, report.to_backend, before)
        and report.from_server == report.to_server
    )


def _earlier(
    env: RunEnvironment, asked: SwitchRequest, to: BackendProfile, server: str | None
) -> Report | None:
    """Return the report of the switch that the same op_id made before; None if there is none."""
    if asked.op_id is None or asked.hand_off is not None:
        return None
    space = env.space
    meant = Report(
        thread=space.label,
        timeline=env.timeline,
        from_backend=None,
        to_backend=to.name,
        to_server=server,
        reason=asked.reason,
        approved_by=asked.approved_by,
    )
    receipt = writer.once(space, asked.op_id, intent(meant))
    commit = receipt.heads[0].commit if receipt is not None else None
    return None if commit is None else report_at(space, commit)


def _with_nothing_done(report: Report) -> Report:
    """Return the report with a note that nothing had to be done."""
    note = f"'{report.thread}' is on {report.to_backend} already; nothing was written"
    return msgspec.structs.replace(report, notes=(*report.notes, note))


def _notes(
    env: RunEnvironment, to: BackendProfile, checkpoint: Checkpoint, *, sealed: bool
) -> tuple[str, ...]:
    notes = [*([to.note] if to.note else ()), *_absent(to)]
    if sealed:
        notes.append("sealed reasoning stays in the history, and goes back to its issuer alone")
    if is_bare(env.agent):
        known = last_frame(env.space, checkpoint.commit) is not None
        how = "as its last turn was shown them" if known else "not known"
        notes.append(f"the code of agent '{env.agent.name}' is not loaded: its tools and options are {how}")
    return (*notes, *checkpoint.validation.notes)


def _absent(to: BackendProfile) -> list[str]:
    """Name the package that has to be installed first, if it is missing."""
    sdk = _SDKS.get(to.target.api) if to.target is not None else None
    if sdk is None or _is_installed(sdk[0]):
        return []
    return [
        f"requests to {to.name} are sent by {sdk[1]}, which is not installed: pip install 'perdure[{sdk[2]}]'"
    ]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


# ---- hand-offs


class HandOffRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A hand-off as the caller requests it; the environment is that of the next agent."""

    from_agent: str
    why: str | None = None
    by: str | None = None
    op_id: str | None = None

    def __post_init__(self) -> None:
        """Raise `Invalid` for a text that cannot be recorded."""
        for name, text in (("reason", self.why), ("by", self.by)):
            if text is not None and (not isinstance(text, str) or not 0 < len(text) <= _REASON_MAX):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise Invalid(
                    f"{name} of a hand-off is 1 to {_REASON_MAX} characters, not {text!r}; nothing was done.",
                    code="hand_off_text_invalid",
                    field=name,
                )
        if self.op_id is not None:
            names.check_id("op_id", self.op_id)


def hand_off(env: RunEnvironment, asked: HandOffRequest) -> None:
    """Let the agent of `env` have its timeline from here on.

    Raises `Conflict` if the timeline is no longer the agent's that hands it off, or has a run that has not ended.
    The same op_id again does nothing.
    """
    space, intent = env.space, _hand_off_intent(env, asked)
    check_released(space)
    env.finish()
    attempts = Attempts(f"timeline '{env.timeline}'", f"thread '{space.label}' was not handed off")
    while True:
        attempts.begin()
        if asked.op_id is not None and writer.once(space, asked.op_id, intent) is not None:
            return
        free = leases.check_free(space, env.timeline, "hand-off", owners=env.owners)
        head = reader.head_to_move(space, env.timeline)
        _check_runs_ended(space, env.timeline)
        bump = CellWrite(name=free.cell, expected=free.revision, value=None)
        if _handed_off(env, asked, head, bump, intent):
            return


def _handed_off(
    env: RunEnvironment, asked: HandOffRequest, head: Head, bump: CellWrite, intent: Digest
) -> bool:
    """Write the hand-off; False if the timeline has changed and all must be checked again."""
    space = env.space
    cell = space.ask(agents_question(space.name))[0]
    founder = (agents_in(cell) or (asked.from_agent,))[0]
    check_agent(space, head.commit, agents_in(cell), asked.from_agent)
    if env.agent.name == asked.from_agent:
        return True  # it has the timeline already
    event = AgentHandedOff(
        id=space.ids(), from_agent=asked.from_agent, to_agent=env.agent.name, why=asked.why, by=asked.by
    )
    made = HandOff(event, agents_write(cell, founder, env.agent.name), _map_of(env), intent)
    backend = env.agent.backend
    recorded = env.lines.backend(space, env.timeline, head.commit)
    try:
        if backend is not None and recorded is not None and not is_on(env, name_of(backend), recorded.name):
            request = SwitchRequest(
                to=backend, reason=asked.why, approved_by=asked.by, op_id=asked.op_id, hand_off=made
            )
            switch(env, request)
        else:
            _commit_hand_off(env, asked, head, bump, made)
    except StaleHead:
        if removed(space):
            raise
        return False
    except Moved as moved:
        if moved.cell not in (bump.name, made.cell.name):
            raise
        return False
    return True


def _commit_hand_off(
    env: RunEnvironment,
    asked: HandOffRequest,
    head: Head,
    bump: CellWrite,
    made: HandOff,
) -> None:
    space = env.space
    proposal = Proposal(
        reason=HANDED_OFF,
        root=space.root_at(head.commit),
        events=(made.event,),
        minted=frozenset((made.event.id,)),
        cells=(bump, made.cell),
        outside=made.reads,
        author=asked.by,
    )
    writer.commit(space, head, proposal, op_id=asked.op_id or space.ids(), intent=made.intent)


def _map_of(env: RunEnvironment) -> Reads:
    """Return the map of the next agent as it is now."""
    agent = env.standing.agent
    hold = None if agent is None else agent.engine.hold(agent.name, MAIN)
    if agent is None or hold is None or hold.head.commit is None:
        return NO_READS
    return Reads(agent_root=agent.root_at(hold.head.commit), agent_commit=hold.head.commit)


def _check_runs_ended(space: Space, timeline: str) -> None:
    """Raise `Conflict` if the timeline has a run that waits, or an input that was not begun."""
    left = [
        record.id
        for name, record in records.open_runs(space.engine)
        if name == space.name and record.timeline == timeline
    ]
    if left:
        raise Conflict(
            f"timeline '{timeline}' of '{space.label}' has runs that have not ended: {', '.join(left)}; it was not "
            "handed off.",
            code="runs_not_ended",
            advice="Decide what they wait for and resume them, or cancel them.",
            thread=space.label,
            timeline=timeline,
            runs=tuple(left),
        )


def _hand_off_intent(env: RunEnvironment, asked: HandOffRequest) -> Digest:
    meant = [HANDED_OFF, env.timeline, asked.from_agent, env.agent.name, asked.why, asked.by]
    return digest_of(Kind.BODY, canonical.encode(meant))
