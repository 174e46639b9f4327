"""Chooses the next backend of an agent's route when the current one cannot take a step.

A failover is a switch like any other, inside the run and under its lease: one commit with the reason and a
checkpoint that lists what the turn has done; the run's record names the new backend in the same write.
Nothing is replayed: the turn goes on where it is.  A backend that would lose something which the agent's
policy does not let pass is passed over.

This module decides and returns a `Takeover`; the run loop writes it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence

import msgspec

from perdure.engines.contract import Step
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
from perdure.runtime.agent.agent import taking_steps
from perdure.runtime.inference.backend import ActiveModel, check_server_on_record
from perdure.runtime.session.journal import Journal
from perdure.switching.current_backend import RecordedBackend
from perdure.switching.report import Report
from perdure.switching.route import Route, Trigger, lacking, needs, trigger_of

__all__ = ["Failover", "Takeover"]

_log = logging.getLogger("perdure.backends")

_WHY_MAX = 1_000  # characters
_SHOWN = 3


class Takeover(msgspec.Struct, frozen=True):
    """A backend that can take over, and the report of the switch to it."""

    to: ActiveModel
    report: Report


class _Need(msgspec.Struct, frozen=True, kw_only=True):
    """Why another backend is needed, and what it has to be able to do."""

    trigger: Trigger
    why: str
    capabilities: frozenset[Capability] = frozenset()
    window: int | None = None  # its context must be larger than this; None: any will do
    must_fit: bool = False  # its context must be known to have room: the current backend has not refused yet


class Failover:
    """Chooses backends for one run, each at most once."""

    def __init__(self, journal: Journal, route: Route) -> None:
        self._journal, self._env, self._route = journal, journal.env, route
        self._tried: set[str] = set()
        self._passed: list[str] = []  # backends that could not take over the last time, and why
        self._profiles: dict[str, BackendProfile] = {}
        self._fits_nowhere = False  # True: no backend has room for the conversation; reset by a takeover

    def before_step(
        self, active: ActiveModel, context: Context, *, unseen: Collection[str], fits: bool
    ) -> Takeover | None:
        """Return the backend that should take the next step instead of `active`; None if there is none.

        `unseen` are the kinds of media that the context only names, because the active model takes none of
        them.  `fits` is False if the context is larger than the known window of that model.
        """
        if not fits and "context" in self._route.triggers:
            takeover = self._with_room(active)
            if takeover is not None:
                return takeover
        need = self._foreseen(active, context, unseen)
        return None if need is None else self._choose(active, need)

    def after_error(self, active: ActiveModel, error: Exception) -> Takeover | None:
        """Return the backend that takes the step in which `active` failed; None if there is none.

        Then a note on the error says why the others of the route were passed over.
        """
        trigger = trigger_of(error)
        takeover = None
        if trigger is not None and trigger in self._route.triggers:
            window = self._profile(active.model).window if trigger == "context" else None
            takeover = self._choose(active, _Need(trigger=trigger, why=said_by(error), window=window))
        if takeover is None and self._passed:
            error.add_note(f"no backend of the route took over: {'; '.join(self._passed)}")
        return takeover

    def _with_room(self, active: ActiveModel) -> Takeover | None:
        """Return a backend with room for the context; if there is none, no backend counts as tried."""
        if self._fits_nowhere:
            return None
        tried = frozenset(self._tried)
        why = "what is to be shown does not fit its window, at the shortest"
        window = self._profile(active.model).window
        takeover = self._choose(active, _Need(trigger="context", why=why, window=window, must_fit=True))
        if takeover is None:
            self._tried, self._passed, self._fits_nowhere = set(tried), [], True
        return takeover

    def _foreseen(self, active: ActiveModel, context: Context, unseen: Collection[str]) -> _Need | None:
        """Return what speaks against the next step on the active backend, before it is taken."""
        most = self._route.budget_tokens
        if most is not None and (spent := self._spent(active.backend)) >= most:
            why = f"the run has taken {spent:,} tokens on it, and may take {most:,}"
            return _Need(trigger="budget", why=why)
        if "capability" not in self._route.triggers:
            return None
        capabilities = needs(context) | {MEDIA[kind] for kind in unseen}
        missing = lacking(self._profile(active.model), capabilities) if capabilities else ()
        if not missing:
            return None
        why = f"it does not do {', '.join(missing)}"
        return _Need(trigger="capability", why=why, capabilities=capabilities)

    def _choose(self, active: ActiveModel, need: _Need) -> Takeover | None:
        """Return the first backend of the route that can take over."""
        effects = [record for record in self._calls() if _is_effect(record)]
        if effects and self._env.agent.policy.after_effect == "fail":
            return None
        self._tried.add(active.backend)
        passed = self._passed = list[str]()
        for reference, to in self._candidates(active, need, passed):
            self._tried.add(to.name)
            report = self._report(active, reference, to, need, passed, effects)
            context_item = report.of("context")
            if need.must_fit and context_item is not None and context_item.mark == "removed":
                passed.append(f"{to.name}: {context_item.says}")
            elif report.ok:
                model = taking_steps(reference)
                self._fits_nowhere = False
                recorded = RecordedBackend(model.backend, report.to_server)
                told = self._journal.run, active.backend, model.backend, need.trigger
                _log.warning("run %s goes on from %s with %s: %s", *told)
                return Takeover(ActiveModel(model, recorded), report)
            else:
                passed.append(str(report))
        return None

    def _candidates(
        self, active: ActiveModel, need: _Need, passed: list[str]
    ) -> Iterator[tuple[BackendRef, BackendProfile]]:
        """Yield the backends that could take over, in order; add to `passed` why the others cannot."""
        # Few runs get here, and it loads much.
        from perdure.runtime.inference.switch import check_taken, found

        env = self._env
        for reference in self._route.after(active.backend, env.agent.backend, tried=tuple(self._tried)):
            try:
                to = found(env, reference)
                check_taken(reference, to)
                check_server_on_record(env, self._journal.head.commit, taking_steps(reference))
            except PerdureError as error:
                passed.append(f"{name_of(reference)}: {error}")
                continue
            missing = lacking(to, {*self._route.requires, *need.capabilities})
            if missing:
                passed.append(f"{to.name}: it does not do {', '.join(missing)}")
            elif need.window is not None and to.window is not None and to.window <= need.window:
                passed.append(f"{to.name}: its context is no larger")
            elif need.must_fit and to.window is None:
                passed.append(f"{to.name}: the size of its context is not known")
            else:
                yield reference, to

    def _report(
        self,
        active: ActiveModel,
        reference: BackendRef,
        to: BackendProfile,
        need: _Need,
        passed: Sequence[str],
        effects: Sequence[CallRecord],
    ) -> Report:
        from perdure.runtime.inference.switch import SwitchRequest, ledger_now, reported

        head = self._journal.head
        reason = shortened(f"failover, {need.trigger}: {need.why}", _WHY_MAX)
        ledger = ledger_now(self._journal.space, head)
        request = SwitchRequest(to=reference, reason=reason)
        report = reported(self._env, request, to, head, ledger, before=active.recorded, inside=True)
        notes = (*report.notes, *(f"passed over {each}" for each in passed), *_effect_notes(effects))
        return msgspec.structs.replace(report, notes=notes)

    def _calls(self) -> list[CallRecord]:
        """Return the calls that the run has requested, also before it was cut off and resumed."""
        requested = [
            event.call
            for step in self._steps()
            for event in step.changeset.events
            if isinstance(event, ToolCallRequested)
        ]
        records = calls.find_many(self._journal.space, requested)
        return [each.record for each in records if each is not None]

    def _spent(self, backend: str) -> int:
        """Count the tokens that the run has taken on a backend."""
        return sum(
            event.usage.input_tokens + event.usage.output_tokens
            for step in self._steps()
            for event in step.changeset.events
            if isinstance(event, MessageAppended)
            and event.usage is not None
            and f"{event.provider}:{event.model}" == backend
        )

    def _steps(self) -> list[Step]:
        journal = self._journal
        return of_run(journal.space, journal.run, journal.head.commit)

    def _profile(self, model: Model) -> BackendProfile:
        """Return what is known of the active backend, by the reference that it was given as."""
        env, name = self._env, model.backend
        if name not in self._profiles:
            known = (*self._route.order(env.agent.backend), *env.handed.values(), model)
            reference = next(each for each in known if name_of(each) == name)
            self._profiles[name] = backend_profile(reference, env.models())
        return self._profiles[name]


def _is_effect(record: CallRecord) -> bool:
    return record.reach.guarded and (done(record) or record.state == "started" or record.state in UNCLEAR)


def _effect_notes(effects: Sequence[CallRecord]) -> Iterator[str]:
    """Yield a note that the turn has had effects and is not replayed, if it has had any."""
    if effects:
        named = ", ".join(f"{record.tool} '{record.id}' {record.state}" for record in effects[:_SHOWN])
        more = f" and {len(effects) - _SHOWN} more" if len(effects) > _SHOWN else ""
        yield f"the turn has had outside effects ({named}{more}); the checkpoint lists them, and nothing is replayed"
