"""`perdure checkpoints show` and `derive`: one checkpoint as its document, stored or derived again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from cyclopts import Parameter

from perdure.cli.commands.models.shapes import known_backend
from perdure.cli.completion import in_store
from perdure.cli.input.lookup import view_at
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, At, Everywhere, ThreadId, Timeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.screen import Screen
from perdure.errors import Corrupt, Invalid, NotFound
from perdure.model.checkpoint import Checkpoint
from perdure.model.config_text import write_yaml
from perdure.model.head import MAIN
from perdure.model.names import did_you_mean
from perdure.store.thread import Thread
from perdure.store.view import View
from perdure.switching.checkpoint.document import enclose
from perdure.switching.checkpoint.stored import StoredCheckpoint, name_of, object_of

__all__ = ["derive", "show", "Enclosed"]


class Enclosed(Answer, frozen=True, kw_only=True):
    """One checkpoint in its envelope."""

    thread: str
    document: dict[str, Any]  # apiVersion, kind, metadata, spec

    @classmethod
    def of(cls, thread: str, checkpoint: Checkpoint) -> Enclosed:
        """Return the checkpoint of a thread as its document."""
        return cls(thread=thread, document=enclose(checkpoint).shape())

    def show(self, screen: Screen) -> None:
        """Print the document, so that it can be kept as a file; a comment says which of its words are guesses."""
        for line in write_yaml(self.document).splitlines():
            screen.say(line)
        guessed = _guessed(self.document["spec"])
        if guessed:
            verb = "is a guess" if len(guessed) == 1 else "are guesses"
            screen.say((f"# {' and '.join(guessed)} {verb}: rules chose the words (see claims).", "quiet"))


def _guessed(spec: dict[str, Any]) -> list[str]:
    """Return the fields that rules took from messages; what state or a model said is no guess of the rules."""
    named = {"user_goal": "userGoal", "current_task": "currentTask"}
    claims: list[dict[str, Any]] = spec.get("claims", [])
    parts = [each["part"] for each in claims if each.get("event") and each["rule"] != "model"]
    return [field for part, field in named.items() if part in parts]


_PREFIX = "chk-"


def show(
    thread: ThreadId,
    checkpoint: Annotated[
        str | None,
        Parameter(
            name="CHECKPOINT",
            completer=in_store,
            help="Its name, its digest or the first digits of it; the newest if left out",
            show_default=False,
        ),
    ] = None,
    /,
    *,
    at: At = None,
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> Enclosed:
    """Show one checkpoint as YAML, in the format in which files hold it"""
    with reading(everywhere) as store:
        seen = view_at(store.thread(thread, timeline=timeline), at)
        if checkpoint is None:
            newest = next(iter(seen.checkpoints(limit=1)), None)
            if newest is None:
                raise _none(thread, timeline)
            return Enclosed.of(thread, newest.checkpoint)
        return Enclosed.of(thread, _named(seen.checkpoints(), checkpoint, thread, timeline).checkpoint)


def _named(kept: list[StoredCheckpoint], name: str, thread: str, timeline: str) -> StoredCheckpoint:
    digits = name.removeprefix(_PREFIX)
    found = {each.digest: each for each in kept if digits and each.digest.startswith(digits)}
    if len(found) > 1:
        raise Invalid(
            f"{name!r} begins {len(found)} checkpoints; nothing is shown.",
            code="ambiguous_name",
            advice="Give more digits.",
            name=name,
        )
    if not found:
        if not kept:
            raise _none(thread, timeline)
        raise NotFound(
            f"timeline '{timeline}' of '{thread}' has no checkpoint {name!r}; nothing is shown. "
            f"{did_you_mean(name, _names(kept))}".rstrip(),
            code="checkpoint_not_found",
            advice=f"See `perdure checkpoints ls {thread}`.",
            thread=thread,
            checkpoint=name,
        )
    return next(iter(found.values()))


def _names(kept: list[StoredCheckpoint]) -> Iterator[str]:
    for each in kept:
        yield from (_PREFIX + each.digest[:12], each.digest)


def _none(thread: str, timeline: str) -> NotFound:
    return NotFound(
        f"timeline '{timeline}' of '{thread}' has no checkpoint: no backend was switched there; nothing is shown.",
        code="checkpoint_missing",
        advice=f"`perdure checkpoints derive {thread}` shows what one would say.",
        thread=thread,
        timeline=timeline,
    )


def derive(
    thread: ThreadId,
    /,
    *,
    to: Annotated[
        str | None,
        Parameter(metavar="BACKEND", help="The backend to switch to, such as anthropic:claude-sonnet-5-5"),
    ] = None,
    check: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Compare it with the one that the switch at --at stored, and fail unless they are the same bytes",
        ),
    ] = False,
    at: At = None,
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> Enclosed:
    """Derive the checkpoint that a switch would make; nothing is written

    Without --at the ledger is read as it is now; with it, as far as that commit had read it. The same
    commit gives the same checkpoint, in any process and on any copy of the store. At the commit of a
    switch it derives the checkpoint of that switch again; --check compares it with the stored one.
    """
    with reading(everywhere) as store:
        line = store.thread(thread, timeline=timeline)
        backend = to if check else _known(line, to)
        seen = view_at(line, at) if at is not None or check else line
        found = seen.checkpoint(to=backend)
        if check:
            _check(seen, found)
    return Enclosed.of(thread, found)


def _known(line: Thread, to: str | None) -> str | None:
    """Return the backend that is named.  One that takes steps itself is known if the timeline was switched to it."""
    if to is None or any(to == report.to_backend for report in line.switches()):
        return to
    return known_backend(to)


def _check(seen: View, derived: Checkpoint) -> None:
    """Raise `Corrupt` unless what was derived is what the switch at this commit kept."""
    kept = next(iter(seen.checkpoints(limit=1)), None)
    if kept is None or kept.commit != seen.digest:
        raise NotFound(
            "no switch was made at this commit, so there is no checkpoint to compare with; nothing was compared.",
            code="switch_not_found",
            advice="Name the commit of a switch with --at; `perdure checkpoints ls` lists them.",
        )
    if derived.to_backend != kept.checkpoint.to_backend:
        raise Invalid(
            f"the switch at {kept.commit[:12]} was to {kept.checkpoint.to_backend}, not to {derived.to_backend}; "
            "nothing was compared.",
            code="other_backend",
            advice="Leave --to out.",
            backend=kept.checkpoint.to_backend,
        )
    again = object_of(derived).digest
    if again != kept.digest:
        raise Corrupt(
            f"the checkpoint of the switch at {kept.commit[:12]} is {name_of(kept.digest)}, but what its commit "
            f"and the ledger say makes {name_of(again)}; nothing was changed.",
            code="checkpoint_differs",
            advice="Run `perdure verify`.",
            commit=kept.commit,
        )
