"""What reconcile and resolve have in common: a call as it stands after somebody spoke."""

from __future__ import annotations

from typing import Self

from perdure.cli.answer import Answer
from perdure.cli.records import CallRecordShape, state
from perdure.cli.screen import Screen
from perdure.threads.thread import Thread

__all__ = ["Settled"]


class Settled(Answer, frozen=True, kw_only=True):
    """A call as it stands now."""

    thread: str
    call: CallRecordShape
    before: str  # its state before

    @classmethod
    def by(cls, thread: Thread, call: str, before: str) -> Self:
        """The answer about that call."""
        traced = thread.trace(call, history=False)
        shape = CallRecordShape.of(thread.id, traced.record, traced.arguments)
        return cls(thread=thread.id, call=shape, before=before)

    @property
    def told(self) -> str:
        """What happened, before a colon."""
        raise NotImplementedError

    def show(self, screen: Screen) -> None:
        """Print one sentence, and what can be done now."""
        call = self.call
        screen.say(
            f"{self.told}: ",
            (call.tool, "tool"),
            " is ",
            state(call.state),
            self._since,
            (f" {call.id}", "name"),
        )
        if call.why:
            screen.wrap((call.why, "quiet"), indent=2)
        if call.state == "requested":
            again = "It starts again when its run goes on: "
            run = (call.run,) if call.run else ()
            screen.suggest(again, "runs", "resume", self.thread, *run, "--code", "MODULE:NAME")

    @property
    def _since(self) -> str:
        return ", as before," if self.call.state == self.before else f", was {self.before},"
