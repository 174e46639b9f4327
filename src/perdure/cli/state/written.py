"""What writing to a state leads to: a commit, and a sentence about it."""

from __future__ import annotations

from typing import Self

from perdure.cli.answer import HeadShape
from perdure.cli.screen import Screen
from perdure.cli.showing import digest
from perdure.cli.state.place import About, whose
from perdure.model.head import Head
from perdure.threads.agents import AgentMap
from perdure.threads.thread import Thread

__all__ = ["Written"]


class Written(About, frozen=True, kw_only=True):
    """Where the timeline stands after a path was written."""

    path: str
    head: HeadShape

    @classmethod
    def at(cls, line: Thread | AgentMap, path: str, head: Head) -> Self:
        """The answer of a write that ended at `head`."""
        return cls(**whose(line), path=path, head=HeadShape.of(head))

    @property
    def told(self) -> str:
        """What happened to the path."""
        raise NotImplementedError

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        screen.say(
            f"{self.told} ",
            (self.path, "name"),
            f" of {self.whose}: ",
            (self.head.timeline, "line"),
            f" is at version {self.head.version}, ",
            digest(self.head.commit),
        )
