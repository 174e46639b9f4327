"""A checkpoint as an answer: its document, as YAML for people and as JSON for programs."""

from __future__ import annotations

from typing import Any

from perdure.cli.answer import Answer
from perdure.cli.screen import Screen
from perdure.migration.envelope import enclose
from perdure.model.checkpoint import Checkpoint
from perdure.model.documents import write_yaml

__all__ = ["Enclosed"]


class Enclosed(Answer, frozen=True, kw_only=True):
    """One checkpoint in its envelope."""

    thread: str
    document: dict[str, Any]  # apiVersion, kind, metadata, spec

    @classmethod
    def of(cls, thread: str, checkpoint: Checkpoint) -> Enclosed:
        """The checkpoint of a thread as its document."""
        return cls(thread=thread, document=enclose(checkpoint).shape())

    def show(self, screen: Screen) -> None:
        """Print the document, so that it can be kept as a file."""
        for line in write_yaml(self.document).splitlines():
            screen.say(line)
