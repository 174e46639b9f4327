"""Every error a caller of Perdure may meet, in one tree.

    PerdureError
    ├── Conflict            somebody else decided first; read again and decide afresh
    │   ├── StaleHead       the timeline moved after it was read
    │   ├── Moved           a small record (a call, a lease, a ticket) changed after it was read
    │   ├── Busy            a run holds the timeline
    │   ├── Decided         the approval was decided otherwise
    │   ├── Sealed          the timeline takes no more writes
    │   ├── MergeConflict   both lines changed the same paths, and no rule says how to join them
    │   ├── OpReused        the op_id was used before, for something else
    │   └── WrongStore      the agent keeps its threads in another store
    ├── NotFound            no such thing, by that name
    │   └── Forgotten       it existed; a policy removed its content
    ├── Invalid             the input breaks a rule; nothing was done with it
    ├── Corrupt             stored bytes are not what was written
    ├── Unsupported         this engine, platform or backend cannot do that
    ├── Refused             a policy said no
    │   └── ServerChanged   the conversation would go to another server than the one on record
    ├── Unavailable         not now; trying again may work
    │   └── InDoubt         a write whose outcome is not known; ask again by its op_id
    ├── NotDone             a tool's own word, and proof: it did nothing
    └── RunFailed           an agent's run ended in failure

A message says what happened, to what, what was not done, and what to do now.  The
facts are attributes.  A driver's own error is never raised: it is the `__cause__`.
"""

from __future__ import annotations

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
    "PerdureError",
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


class PerdureError(Exception):
    """The root of everything that Perdure raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by the message and the facts, so that the error can cross a process boundary."""
        return _restored, (type(self), self.args, self.__dict__)


class Conflict(PerdureError):
    """Somebody else decided first.  Nothing was written."""


class StaleHead(Conflict):
    """The timeline moved on after the writer read it.  Nothing was written."""

    def __init__(
        self,
        expected: Head,
        actual: Head,
        because: str = "",
        *,
        left: str = "nothing was written",
        advice: str = "Read it again and decide afresh.",
    ) -> None:
        """Say where the writer thought the timeline stood, where it stands, and why if the heads cannot tell.

        `left` is what was not done, where something beside the line was.
        """
        self.expected, self.actual, self.because = expected, actual, because
        super().__init__(
            f"timeline '{expected.timeline}' is at {_place(actual)}, but this write was based on "
            f"{_place(expected)}{', and ' + because if because else ''}; {left}. {advice}"
        )


class Moved(Conflict):
    """A cell that the write depends on changed after the writer read it.  Nothing was written."""

    def __init__(self, cell: str, expected: int, actual: int) -> None:
        """Say at which revision the writer read the cell, and at which it is."""
        self.cell, self.expected, self.actual = cell, expected, actual
        super().__init__(
            f"cell '{cell}' is at revision {actual}, not {expected} as this write requires; nothing was written. "
            "Read it again and decide afresh."
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
        """Say which run holds the timeline and until when, what that is in the way of, and if nobody runs it now.

        `call`: the holder is a call, and holds nothing but itself.
        """
        self.holder, self.until, self.timeline, self.interrupted = holder, until, timeline, interrupted
        line = f"timeline '{timeline}'" if timeline else "this timeline"
        why = (
            f"run '{holder}' on {line} was interrupted; nothing was done. resume() finishes it, cancel() ends it."
            if interrupted
            else f"call '{holder}' is under way in a process that lives; nothing was done. Ask again when {until}."
            if call
            else f"run '{holder}' holds {line} until {until}, or longer if it goes on; nothing was done. "
            "Wait for it, or end it with cancel()."
        )
        super().__init__(f"{what} is not possible now: {why}" if what else why)


class Decided(Conflict):
    """The approval was already decided, and otherwise."""


class Sealed(Conflict):
    """The timeline takes no more writes.  Nothing was written."""

    def __init__(self, timeline: str) -> None:
        """Name the sealed timeline."""
        self.timeline = timeline
        super().__init__(
            f"timeline '{timeline}' is sealed; nothing was written. Fork it, or promote it, to go on from there."
        )


class PathConflict(NamedTuple):
    """A path that both lines changed, by the digests of its three values; None: the path held nothing there."""

    path: str
    base: str | None  # where the lines parted
    ours: str | None
    theirs: str | None
    why: str


class MergeConflict(Conflict):
    """Both lines changed the same paths, and no rule says how to join them.  Nothing was written."""

    def __init__(self, conflicts: Sequence[PathConflict]) -> None:
        """Name every path in conflict."""
        self.conflicts = tuple(conflicts)
        shown = "; ".join(f"{each.path} ({each.why})" for each in self.conflicts[:5])
        more = f" and {len(self.conflicts) - 5} more" if len(self.conflicts) > 5 else ""
        super().__init__(
            f"{_counted(len(self.conflicts))} in conflict: {shown}{more}; nothing was written. "
            "Make them equal on both lines, or declare a merge rule for them, and merge again."
        )


class OpReused(Conflict):
    """The op_id was used before for a write with another intent.  Nothing was written."""

    def __init__(self, op_id: str) -> None:
        """Name the op_id."""
        self.op_id = op_id
        super().__init__(
            f"op_id '{op_id}' already names a different write in this space; nothing was written. "
            "Use a new op_id for a new intent."
        )


class WrongStore(Conflict):
    """The agent keeps its threads in another store.  Nothing was written."""

    def __init__(self, agent: str, expected: str, actual: str) -> None:
        """Name the agent, the store that it declares and the one that was opened."""
        self.agent, self.expected, self.actual = agent, expected, actual
        super().__init__(
            f"agent '{agent}' keeps its threads in {expected}, and this store is {actual}; nothing was written. "
            "Open the store that it names, or change its object_storage."
        )


class NotFound(PerdureError):
    """There is no such thing by that name."""


class Forgotten(NotFound):
    """The thing existed, and a policy that the user set removed its content."""

    def __init__(self, what: str, why: str) -> None:
        """Say what was forgotten, and why."""
        self.what, self.why = what, why
        super().__init__(
            f"{what} was forgotten: {why}. Its digest still verifies; its content cannot be read again."
        )


class Invalid(PerdureError, ValueError):
    """The input breaks a rule.  Nothing was written."""


class Corrupt(PerdureError):
    """Stored bytes are not what was written.  Nothing was returned in their place."""

    def __init__(self, message: str, *, cell: str | None = None, digest: str | None = None) -> None:
        """Say what is damaged; `cell` is the name of the cell, `digest` of the missing object, where it is one."""
        self.cell, self.digest = cell, digest
        super().__init__(message)


class Unsupported(PerdureError):
    """This engine, platform or backend cannot do that."""


class Refused(PerdureError):
    """A policy said no; the report says why."""

    def __init__(self, report: object) -> None:
        """Carry the report."""
        self.report = report
        super().__init__(f"refused, nothing was done: {report}")


class ServerChanged(Refused):
    """The conversation would go to another server than the one on record.  Nothing was sent there."""

    def __init__(
        self, backend: str, *, recorded: str | None, resolved: str | None, thread: str | None = None
    ) -> None:
        """Name both servers; None stands for a model of the program's own that names no server."""
        self.backend, self.recorded, self.resolved, self.thread = backend, recorded, resolved, thread
        of = f"of '{thread}' " if thread else ""
        was, now = (each or "a model of the program's own" for each in (recorded, resolved))
        PerdureError.__init__(
            self,
            f"the conversation {of}with {backend} is at {was}, and this request would go to {now}; nothing was sent "
            "there. Give the agent the Backend that leads to the same server, or move the thread on purpose with "
            "switch(…); a run that was cut off has to be ended first, with cancel().",
        )
        self.report = str(self)


class Unavailable(PerdureError):
    """The store cannot do it now; trying again may work."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        """Say what is unavailable; `retry_after` is in seconds, None where nobody can tell."""
        self.retry_after = retry_after
        super().__init__(message)


class InDoubt(Unavailable):
    """A write may or may not have become true.  The same write with the same op_id settles it."""

    def __init__(self, op_id: str, why: str = "") -> None:
        """Name the write by its op_id; say why if that is known."""
        self.op_id, self.why = op_id, why
        super().__init__(
            f"the outcome of write '{op_id}' is not known{f' ({why})' if why else ''}. It is either whole or absent. "
            "Repeat it with the same op_id, after reopening the store if need be; it will not be applied twice."
        )


class NotDone(PerdureError):
    """A tool raises it where it knows that nothing happened.  Its call is then failed, not unknown."""


class RunFailed(PerdureError):
    """An agent's run ended in failure."""

    def __init__(self, run: object) -> None:
        """Carry the run."""
        self.run = run
        told = str(run)
        super().__init__(f"run {told}" if " failed" in told else f"run {told} failed")


def _restored(kind: type[PerdureError], args: tuple[object, ...], facts: dict[str, object]) -> PerdureError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


def _place(head: Head) -> str:
    return f"version {head.version} ({head.commit[:12] if head.commit else 'nothing committed'})"


def _counted(paths: int) -> str:
    return "1 path is" if paths == 1 else f"{paths} paths are"
