"""The families of errors that a caller of Perdure may meet, in one tree.

    PerdureError
    ├── Conflict            another writer was first; read again and decide again
    │   ├── StaleHead       the timeline moved after it was read
    │   ├── Moved           a small record (a call, a lease, a ticket) changed after it was read
    │   ├── Busy            a run holds the timeline
    │   ├── Decided         the approval was decided otherwise
    │   ├── Sealed          the timeline takes no more writes
    │   ├── MergeConflict   both timelines changed the same paths, and no merge rule covers them
    │   ├── OpReused        the op_id was used before, for something else
    │   └── WrongStore      the agent keeps its threads in another store
    ├── NotFound            nothing has that name
    │   └── Forgotten       it existed; a policy removed its content
    ├── Invalid             the input breaks a rule; nothing was done with it
    ├── Corrupt             stored bytes are not what was written
    ├── Unsupported         this engine, platform or backend cannot do that
    ├── Refused             a policy said no
    │   ├── Held            the thread came from another store and was not released here
    │   └── ServerChanged   the conversation would go to another server than the one on record
    ├── Unavailable         not now; trying again may work
    │   └── InDoubt         the outcome of a write is unknown; ask again by its op_id
    ├── NotDone             raised by a tool: proof that it did nothing
    └── RunFailed           an agent's run ended in failure

Some subclasses are in the packages that raise them.  `perdure.providers.transport.errors` has those of a vendor's
answers: `BackendUnavailable` with `RateLimited` and `CutOff` (Unavailable), `AccessRefused` and `ContentRefused`
(Refused), `RequestRejected` with `ContextTooLong` (Invalid).  The runtime has `Lost` (Conflict) and `NoMemory`
(Invalid).  docs/reference/errors.md lists them.

Programs read `code` and `facts`.  The code names the kind of failure and never changes; the facts are what the
message tells.  `message` says what happened, to what and what was not done; `advice` says what to do now.  Both are
for people and may be reworded in any release.  A driver's own error is never raised: it is the `__cause__`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from perdure.model.head import Head

__all__ = [
    "Busy",
    "Conflict",
    "Corrupt",
    "Decided",
    "Forgotten",
    "Held",
    "PerdureError",
    "PerdureWarning",
    "InDoubt",
    "Invalid",
    "MergeConflict",
    "Moved",
    "NotDone",
    "NotFound",
    "OpReused",
    "PathConflict",
    "Refused",
    "RunFailed",
    "Sealed",
    "ServerChanged",
    "StaleHead",
    "Unavailable",
    "Unsupported",
    "WrongStore",
]


class _Coded(Exception):
    """What errors and warnings have in common: a code and facts for programs, a message and advice for people."""

    code: str = "error"

    def __init_subclass__(cls) -> None:
        """Give each public class the code of its name: `stale_head` for `StaleHead`."""
        if not cls.__name__.startswith("_") and "code" not in vars(cls):
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(self, message: str = "", *, code: str = "", advice: str = "", **facts: object) -> None:
        """Keep `facts` as attributes; an empty `code` means the code of the class."""
        if code:
            self.code = code
        self.message, self.advice = message, advice
        self.__dict__.update(facts)
        super().__init__(f"{message} {advice}" if advice else message)

    @property
    def facts(self) -> dict[str, object]:
        """What the message tells, by name."""
        return {name: value for name, value in vars(self).items() if name not in _NO_FACTS}

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by the message and the facts, so that the error can cross a process boundary."""
        return _restored, (type(self), self.args, self.__dict__)


_NO_FACTS = frozenset({"code", "message", "advice", "__notes__"})


class PerdureError(_Coded):
    """The root of everything that Perdure raises on purpose."""


class PerdureWarning(_Coded, UserWarning):
    """A warning of Perdure: what was asked for is done, but perhaps not as intended."""


class Conflict(PerdureError):
    """Another writer was first.  Nothing was written."""


class StaleHead(Conflict):
    """The timeline moved on after the writer read it.  Nothing was written."""

    def __init__(
        self,
        expected: Head,
        actual: Head,
        because: str = "",
        *,
        left: str = "nothing was written",
        advice: str = "Read it again and decide again.",
    ) -> None:
        """Say which head the writer read, which head the timeline has, and why if the heads cannot tell.

        `left` says what was not done, where something other than the timeline was written.
        """
        self.expected, self.actual, self.because = expected, actual, because
        super().__init__(
            f"timeline '{expected.timeline}' is at {_place(actual)}, but this write was based on "
            f"{_place(expected)}{', and ' + because if because else ''}; {left}.",
            advice=advice,
        )


class Moved(Conflict):
    """A cell that the write depends on changed after the writer read it.  Nothing was written."""

    def __init__(self, cell: str, expected: int, actual: int) -> None:
        """Say at which revision the writer read the cell, and at which it is."""
        self.cell, self.expected, self.actual = cell, expected, actual
        super().__init__(
            f"cell '{cell}' is at revision {actual}, not {expected} as this write requires; nothing was written.",
            advice="Read it again and decide again.",
        )


class Busy(Conflict):
    """A run holds the timeline, or a process is in the middle of a call.  Nothing was done."""

    def __init__(
        self,
        holder: str,
        until: str,
        *,
        timeline: str = "",
        what: str = "",
        interrupted: bool = False,
        call: bool = False,
    ) -> None:
        """Say which run holds the timeline and until when, and what it prevents.

        `interrupted`: no process carries the run on now.  `call`: the holder is a call, which holds only itself.
        """
        self.holder, self.until, self.timeline, self.interrupted = holder, until, timeline, interrupted
        line = f"timeline '{timeline}'" if timeline else "this timeline"
        if interrupted:
            why, advice = (
                f"run '{holder}' on {line} was interrupted",
                "resume() finishes it, cancel() ends it.",
            )
        elif call:
            why, advice = f"call '{holder}' is under way in a live process", f"Ask again when {until}."
        else:
            why = f"run '{holder}' holds {line} until {until}, or longer if it goes on"
            advice = "Wait for it, or end it with cancel()."
        super().__init__(
            f"{f'{what} is not possible now: ' if what else ''}{why}; nothing was done.",
            code="run_interrupted" if interrupted else "call_busy" if call else "",
            advice=advice,
        )


class Decided(Conflict):
    """The approval was already decided, and otherwise."""


class Sealed(Conflict):
    """The timeline takes no more writes.  Nothing was written to it."""

    def __init__(self, timeline: str, because: str = "", *, left: str = "nothing was written") -> None:
        """Name the sealed timeline; `because` and `left` say what the ledger has, and what was not done."""
        self.timeline, self.because = timeline, because
        super().__init__(
            f"timeline '{timeline}' is sealed{', and ' + because if because else ''}; {left}.",
            advice="Fork it, or promote it, to go on from there.",
        )


class PathConflict(NamedTuple):
    """A path that both timelines changed, with the digests of its three values; None: the path had no value there."""

    path: str
    base: str | None  # at the last common commit
    ours: str | None
    theirs: str | None
    why: str
    keys: tuple[tuple[str, ...], ...] = ()  # of an object that is joined by key: the places that both changed


class MergeConflict(Conflict):
    """Both timelines changed the same paths, and no merge rule covers them.  Nothing was written."""

    def __init__(self, conflicts: Sequence[PathConflict], *, picked: str | None = None) -> None:
        """Name every path in conflict; `picked` is the turn or commit that does not fit, None where lines are merged."""
        self.conflicts, self.picked = tuple(conflicts), picked
        shown = "; ".join(f"{each.path} ({each.why})" for each in self.conflicts[:5])
        more = f" and {len(self.conflicts) - 5} more" if len(self.conflicts) > 5 else ""
        super().__init__(
            f"{f'{picked} does not fit: ' if picked else ''}{_counted(len(self.conflicts))} in conflict: {shown}{more}; "
            "nothing was written.",
            advice='Say whose value counts with prefer="ours" or prefer="theirs", or declare a merge rule for them.',
        )


class OpReused(Conflict):
    """The op_id was used before for a write with another intent.  Nothing was written."""

    def __init__(self, op_id: str) -> None:
        """Name the op_id."""
        self.op_id = op_id
        super().__init__(
            f"op_id '{op_id}' already names a different write in this space; nothing was written.",
            advice="Use a new op_id for a new intent.",
        )


class WrongStore(Conflict):
    """The agent keeps its threads in another store.  Nothing was written."""

    def __init__(self, agent: str, expected: str, actual: str) -> None:
        """Name the agent, the store that it declares and the one that was opened."""
        self.agent, self.expected, self.actual = agent, expected, actual
        super().__init__(
            f"agent '{agent}' keeps its threads in {expected}, and this store is {actual}; nothing was written.",
            advice="Open the store that it names, or change its object_storage.",
        )


class NotFound(PerdureError):
    """Nothing has that name."""


class Forgotten(NotFound):
    """The thing existed, and a policy that the user set removed its content."""

    def __init__(self, what: str, why: str, *, advice: str = "") -> None:
        """Say what was forgotten, and why; `advice` says what can be read instead."""
        self.what, self.why = what, why
        super().__init__(
            f"{what} was forgotten: {why}. Its digest still verifies; its content cannot be read again.",
            advice=advice,
        )


class Invalid(PerdureError, ValueError):
    """The input breaks a rule.  Nothing was written."""


class Corrupt(PerdureError):
    """Stored bytes are not what was written.  Nothing was returned in their place."""

    def __init__(
        self,
        message: str,
        *,
        cell: str | None = None,
        digest: str | None = None,
        code: str = "",
        advice: str = "",
        **facts: object,
    ) -> None:
        """Say what is damaged: `cell` is the cell's name, `digest` the missing object's, where it is one of these."""
        self.cell, self.digest = cell, digest
        super().__init__(message, code=code, advice=advice, **facts)


class Unsupported(PerdureError):
    """This engine, platform or backend cannot do that."""


class Refused(PerdureError):
    """A policy said no; the report says why."""

    def __init__(
        self, report: object, *, why: str = "", code: str = "", advice: str = "", **facts: object
    ) -> None:
        """Carry the report; `why` says the reason in one sentence, "" if the report itself is one."""
        self.report, self.why = report, why or str(report)
        super().__init__(f"nothing was done: {self.why}", code=code, advice=advice, **facts)


class Held(Refused):
    """The thread came from another store: its runs and approvals wait until a person releases it.  Nothing was done."""

    def __init__(self, thread: str, source: str) -> None:
        """Name the thread, and the store that it came from."""
        self.thread, self.source = thread, source
        PerdureError.__init__(
            self,
            f"thread '{thread}' came from {source}, where the same run may go on, and was not released here; nothing "
            "was done.",
            advice="See with compare() what was carried out there since; if nothing runs there any more, release it with "
            f"release('{thread}').",
        )
        self.report, self.why = str(self), self.message


class ServerChanged(Refused):
    """The conversation would go to another server than the one on record.  Nothing was sent there."""

    def __init__(
        self, backend: str, *, recorded: str | None, resolved: str | None, thread: str | None = None
    ) -> None:
        """Name both servers; None stands for a model object of the program that names no server."""
        self.backend, self.recorded, self.resolved, self.thread = backend, recorded, resolved, thread
        self.address = resolved if resolved and "://" in resolved else "URL"  # for a switch to that server
        of = f"of '{thread}' " if thread else ""
        was, now = (each or "a model of the program's own" for each in (recorded, resolved))
        PerdureError.__init__(
            self,
            f"the conversation {of}with {backend} is at {was}, and this request would go to {now}; nothing was sent "
            "there.",
            advice="Give the agent the Backend that leads to the same server, or move the thread on purpose with "
            "switch(Backend(…, base_url=…)); a run that was cut off has to be ended first, with cancel().",
        )
        self.report, self.why = str(self), self.message


class Unavailable(PerdureError):
    """The store cannot do it now; trying again may work."""

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        code: str = "",
        advice: str = "",
        **facts: object,
    ) -> None:
        """Say what is unavailable; `retry_after` is in seconds, None if it is unknown."""
        self.retry_after = retry_after
        super().__init__(message, code=code, advice=advice, **facts)


class InDoubt(Unavailable):
    """The outcome of a write is unknown.  The same write with the same op_id settles it."""

    def __init__(self, op_id: str, why: str = "") -> None:
        """Name the write by its op_id; say why if that is known."""
        self.op_id, self.why = op_id, why
        super().__init__(
            f"the outcome of write '{op_id}' is not known{f' ({why})' if why else ''}. It is either whole or absent.",
            advice="Repeat it with the same op_id, after reopening the store if need be; it will not be applied twice.",
        )


class NotDone(PerdureError):
    """A tool raises it where it knows that nothing happened.  Its call is then failed, not unknown."""


class RunFailed(PerdureError):
    """An agent's run ended in failure."""

    def __init__(self, run: object, *, code: str = "", advice: str = "") -> None:
        """Carry the run; `advice` is that of the error that made it fail."""
        self.run = run
        ended = "" if hasattr(run, "status") else " failed"  # a result says itself how the run ended
        super().__init__(f"run {run}{ended}", code=code, advice=advice)

    def __str__(self) -> str:
        """Say also how a program tries it again; a person at a terminal or a page does so in another way."""
        said = super().__str__()
        if self.code != type(self).code:
            return said
        run = getattr(self.run, "run", self.run)
        again = f"Try again with resume('{run}', retry=True), or with the same input and the id that it had, if any."
        return f"{said.rstrip('.')}. {again}"


def _restored(kind: type[_Coded], args: tuple[object, ...], facts: dict[str, object]) -> _Coded:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


def _place(head: Head) -> str:
    return f"version {head.version} ({head.commit[:12] if head.commit else 'nothing committed'})"


def _counted(paths: int) -> str:
    return "1 path is" if paths == 1 else f"{paths} paths are"
