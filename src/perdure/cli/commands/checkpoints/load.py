"""`perdure checkpoints load`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.screen import Screen
from perdure.errors import Invalid, NotFound
from perdure.model.config_text import write_yaml
from perdure.switching.checkpoint.document import Envelope, load_checkpoint

__all__ = ["Loaded", "load"]


class Loaded(Answer, frozen=True, kw_only=True):
    """A checkpoint that was read from a file."""

    name: str
    thread: str
    is_named_after_its_content: bool  # false: it was altered since it was written, or has another name
    document: dict[str, Any]  # apiVersion, kind, metadata, spec

    def show(self, screen: Screen) -> None:
        """Print the document, as it would be written again, and whether it was altered."""
        for line in write_yaml(self.document).splitlines():
            screen.say(line)
        screen.gap()
        if self.is_named_after_its_content:
            screen.say("Its name ", (self.name, "name"), " is that of its content: it was not altered.")
        else:
            screen.say(
                ("Its name ", "warn"),
                (self.name, "name"),
                (" is not that of its content: it was altered, or named by hand.", "warn"),
            )


def load(
    file: Annotated[
        str, Parameter(name="FILE", help="The file, YAML or JSON; - is the input", allow_leading_hyphen=True)
    ],
    /,
    *,
    everywhere: Everywhere = EVERYWHERE,
) -> Loaded:
    """Read a checkpoint from a file, and verify it

    No store is needed and nothing is written. A document that is no StateCheckpoint is an error with its line.
    """
    found = _read(file)
    return Loaded(
        name=found.name,
        thread=found.checkpoint.conversation,
        is_named_after_its_content=found.is_named_after_its_content,
        document=found.shape(),
    )


def _read(file: str) -> Envelope:
    if file != "-":
        if not Path(file).is_file():
            raise NotFound(
                f"there is no file '{file}'; nothing was read.",
                code="file_not_found",
                file=file,
            )
        return load_checkpoint(Path(file))
    try:
        return load_checkpoint(sys.stdin.buffer.read().decode())
    except UnicodeDecodeError as error:
        raise Invalid(
            f"the input is not UTF-8: {error}; nothing was read.",
            code="not_utf8",
        ) from error
