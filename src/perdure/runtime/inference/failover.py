"""Routing: a run goes on with the next backend of its agent's route, and says so in its history.

Going on is a switch like any other, inside the run and under its lease: one commit with a
checkpoint that lists what the turn has done, and with the reason; the run's record names the new
backend in the same write.  Nothing is replayed: the turn goes on where it stands.  Who would lose
what the policy does not let pass is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from perdure.engines.contract import CellWrite, Step
from perdure.errors import PerdureError
from perdure.history.ancestry import of_run
from perdure.ledger import calls
from perdure.ledger.repeat_guard import done
from perdure.model.call import UNCLEAR, CallRecord
from perdure.model.context import Context
from perdure.model.event import MessageAppended, ToolCallRequested
from perdure.model.text import said_by, shortened
from perdure.providers.capabilities import Capability
from perdure.providers.contract import Model
from perdure.providers.profile import MEDIA, BackendProfile, BackendRef, backend_profile, name_of
from perdure.runtime import failpoints
from perdure.runtime.agent.agent import taking_steps
from perdure.runtime.calls.round import RoundContext
from perdure.runtime.inference.backend import check_server, check_server_on_record
from perdure.runtime.inference.step import Patience, StepReply, infer
from perdure.runtime.inference.switch import SwitchRequest, check_taken, found, ledger_now, reported
from perdure.switching.commit import REASON, switched
from perdure.switching.current_backend import RecordedBackend
from perdure.switching.report import Report
from perdure.switching.route import Route, Trigger

__all__ = ["Failover"]

_WHY_MAX = 1_000  # characters
_SHOWN = 3


class _Want(msgspec.Struct, frozen=True, kw_only=True):
    """Why somebody else is wanted, and what they have to be able to do."""

    trigger: Trigger
    why: str
    needs: frozenset[Capability] = frozenset()
    window: int | None = None  # larger than this, where the conversation was too long; None: any
    must_fit: bool = (
        False  # only who is known to have room for it: it was foreseen, and nobody has refused yet
    )


class Failover:
    """Who takes the steps of one run: the backend that it began with, or the next one of the agent's route."""

    def __init__(
        self,
        round_context: RoundContext,
        model: Model,
        recorded: RecordedBackend,
        hand_over: Callable[[RecordedBackend, Sequence[CellWrite]], None],
    ) -> None:
        """Begin with the line's own backend, and nobody tried; `hand_over` writes who takes over, and these cells."""
        self._round_context, self.model, self.recorded, self._hand_over = (
            round_context,
            model,
            recorded,
            hand_over,
        )
        self._route = round_context.env.agent.route
        self._tried: set[str] = set()
        self._passed: list[str] = []  # who could not take over when somebody was wanted last, and why
        self._seen: dict[str, BackendProfile] = {}  # what is known of a backend, by its name
        self._is_nowhere = False  # nobody has room for it who could take over from this backend

    async def ask(
        self,
        context: Context,
        heard: Sequence[CellWrite],
        names: Mapping[str, str],
        patience: Patience,
        *,
        unseen: Collection[str] = (),
        fits: bool = True,
    ) -> StepReply | None:
        """What the model says; None: another has taken over, which `heard` was written with, and is to be asked anew.

        It is also None if the run may not wait any longer; the model is the same then, and nothing was written.

        `unseen` are the kinds of media that the context only names, because this model takes none; `fits` says
        whether the context is within what is known of the model's window.
        Raises what the model raises, if nobody takes over.
        """
        route = self._route
        if (
            route is not None
            and context.pending is None
            and await self._round_context.do(partial(self._before, route, context, heard, unseen, fits=fits))
        ):
            return None
        round_context = self._round_context
        # The environment may have changed since the run began, and with it the address of the backend.
        check_server(round_context.env, self.recorded, self.model)
        try:
            return await infer(
                self.model, context, round_context.journal.feed, round_context.space.ids, names, patience
            )
        except Exception as error:
            if route is None or not await round_context.do(partial(self._after, route, error, heard)):
                if self._passed:
                    error.add_note(f"nobody of the route took over: {'; '.join(self._passed)}")
                raise
        return None

    def _before(
        self,
        route: Route,
        context: Context,
        cells: Sequence[CellWrite],
        unseen: Collection[str],
        *,
        fits: bool,
    ) -> bool:
        """Whether another takes the next step, because of what is to be shown or was spent."""
        if not fits and "context" in route.triggers and self._goes_where_it_fits(route, cells):
            return True
        want = self._foreseen(route, context, unseen)
        return want is not None and self._go_on(route, want, cells)

    def _goes_where_it_fits(self, route: Route, cells: Sequence[CellWrite]) -> bool:
        """Whether somebody takes over who has room for what is to be shown; if nobody does, nobody counts as tried."""
        if self._is_nowhere:
            return False
        tried = frozenset(self._tried)
        why = "what is to be shown does not fit its window, at the shortest"
        window = self._backend_profile(route).window
        if self._go_on(route, _Want(trigger="context", why=why, window=window, must_fit=True), cells):
            return True
        self._tried, self._passed, self._is_nowhere = set(tried), [], True
        return False

    def _after(self, route: Route, error: Exception, cells: Sequence[CellWrite]) -> bool:
        """Whether another takes the step that failed; if nobody does, the error stands."""
        from perdure.switching.route import trigger_of  # most runs meet no error

        trigger = trigger_of(error)
        if trigger is None or trigger not in route.triggers:
            return False
        window = self._backend_profile(route).window if trigger == "context" else None
        return self._go_on(route, _Want(trigger=trigger, why=said_by(error), window=window), cells)

    def _foreseen(self, route: Route, context: Context, unseen: Collection[str]) -> _Want | None:
        """What speaks against the next step on this backend, before it is taken."""
        most = route.budget_tokens
        if most is not None and (spent := self._spent()) >= most:
            return _Want(
                trigger="budget", why=f"the run has taken {spent:,} tokens on it, and may take {most:,}"
            )
        if "capability" not in route.triggers:
            return None
        from perdure.switching.route import lacking, needs

        wanted = needs(context) | {MEDIA[kind] for kind in unseen}
        missing = lacking(self._backend_profile(route), wanted) if wanted else ()
        if not missing:
            return None
        return _Want(trigger="capability", why=f"it does not do {', '.join(missing)}", needs=wanted)

    def _go_on(self, route: Route, want: _Want, cells: Sequence[CellWrite]) -> bool:
        """Let the first take over who can; whether anybody can."""
        effects = [record for record in self._calls() if _is_effect(record)]
        if effects and self._round_context.env.agent.policy.after_effect == "fail":
            return False
        self._tried.add(self.model.backend)
        passed = self._passed = list[str]()
        for given, to in self._candidates(route, want, passed):
            self._tried.add(to.name)
            report = self._report(given, to, want, passed, effects)
            crowded = report.of("context")
            if want.must_fit and crowded is not None and crowded.mark == "removed":
                passed.append(f"{to.name}: {crowded.says}")
            elif report.ok:
                chosen = taking_steps(given)
                recorded = RecordedBackend(chosen.backend, report.to_server)
                self._write(report, recorded, cells)
                self.model, self.recorded = chosen, recorded
                self._is_nowhere = False
                return True
            else:
                passed.append(str(report))
        return False

    def _candidates(
        self, route: Route, want: _Want, passed: list[str]
    ) -> Iterator[tuple[BackendRef, BackendProfile]]:
        """Who could take over, in order; why others cannot goes into `passed`."""
        from perdure.switching.route import lacking

        env = self._round_context.env
        for given in route.after(self.model.backend, env.agent.backend, tried=tuple(self._tried)):
            try:
                to = found(env, given)
                check_taken(given, to)
                check_server_on_record(env, self._round_context.journal.head.commit, taking_steps(given))
            except PerdureError as error:
                passed.append(f"{name_of(given)}: {error}")
                continue
            missing = lacking(to, {*route.requires, *want.needs})
            if missing:
                passed.append(f"{to.name}: it does not do {', '.join(missing)}")
            elif want.window is not None and to.window is not None and to.window <= want.window:
                passed.append(f"{to.name}: its context is no larger")
            elif want.must_fit and to.window is None:
                passed.append(f"{to.name}: how large its context is is not known")
            else:
                yield given, to

    def _report(
        self,
        given: BackendRef,
        to: BackendProfile,
        want: _Want,
        passed: Sequence[str],
        effects: Sequence[CallRecord],
    ) -> Report:
        env, head, space = (
            self._round_context.env,
            self._round_context.journal.head,
            self._round_context.space,
        )
        asked = SwitchRequest(to=given, reason=shortened(f"failover, {want.trigger}: {want.why}", _WHY_MAX))
        ledger = ledger_now(space, head)
        report = reported(env, asked, to, head, ledger, before=self.recorded, inside=True)
        notes = (*report.notes, *(f"passed over {each}" for each in passed), *_told(effects))
        return msgspec.structs.replace(report, notes=notes)

    def _write(self, report: Report, recorded: RecordedBackend, cells: Sequence[CellWrite]) -> None:
        checkpoint, journal = report.checkpoint, self._round_context.journal
        assert checkpoint is not None, "a report is made with its checkpoint"
        holds = switched(report, checkpoint, journal.space.ids)
        draft = journal.draft(REASON)
        draft.extend(holds.events)
        draft.objects += holds.objects
        journal.stage(draft)
        failpoints.hit("switch_checked")
        self._hand_over(recorded, cells)
        failpoints.hit("switch_written")
        journal.feed.committed(journal.head.commit, spoken=True)  # half an answer is none

    def _calls(self) -> list[CallRecord]:
        """What the run has asked for, also before it was cut off and resumed."""
        asked = [
            event.call
            for step in self._steps()
            for event in step.changeset.events
            if isinstance(event, ToolCallRequested)
        ]
        found = (calls.find(self._round_context.space, call) for call in asked)
        return [held.record for held in found if held is not None]

    def _spent(self) -> int:
        """The tokens that the run has taken on the backend that it is on."""
        return sum(
            event.usage.input_tokens + event.usage.output_tokens
            for step in self._steps()
            for event in step.changeset.events
            if isinstance(event, MessageAppended)
            and event.usage is not None
            and f"{event.provider}:{event.model}" == self.model.backend
        )

    def _steps(self) -> list[Step]:
        journal = self._round_context.journal
        return of_run(journal.space, journal.run, journal.head.commit)

    def _backend_profile(self, route: Route) -> BackendProfile:
        """What is known of the backend that the run is on, by what it was given as."""
        env, name = self._round_context.env, self.model.backend
        if name not in self._seen:
            known = (*route.order(env.agent.backend), *env.handed.values(), self.model)
            given = next(each for each in known if name_of(each) == name)
            self._seen[name] = backend_profile(given, env.models())
        return self._seen[name]


def _is_effect(record: CallRecord) -> bool:
    return record.reach.guarded and (done(record) or record.state == "started" or record.state in UNCLEAR)


def _told(effects: Sequence[CallRecord]) -> Iterator[str]:
    """That the turn has had effects, and is not replayed."""
    if effects:
        named = ", ".join(f"{record.tool} '{record.id}' {record.state}" for record in effects[:_SHOWN])
        more = f" and {len(effects) - _SHOWN} more" if len(effects) > _SHOWN else ""
        yield f"the turn has had outside effects ({named}{more}); the checkpoint lists them, and nothing is replayed"
