"""`perdure agents apply`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from perdure.cli.commands.models.shapes import known_models
from perdure.cli.input.json_input import read_bytes
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.screen import Screen
from perdure.cli.usage import to_be_named
from perdure.errors import Invalid
from perdure.model.names import shown_address
from perdure.runtime.agent.file import Definition, read_definition
from perdure.store.open_store import open as open_store

__all__ = ["AgentApplyAnswer", "apply"]

_SCHEMES = ("://", "memory:")


class AgentApplyAnswer(Answer, frozen=True, kw_only=True):
    """A definition that is kept now."""

    name: str
    store: str  # where
    version: str
    changed: bool  # false: it was the same before, and nothing was written
    backend: str | None
    tools: list[str]

    def show(self, screen: Screen) -> None:
        """Print one sentence, and what to do next."""
        if not self.changed:
            screen.say(
                "Agent ", (self.name, "name"), " is unchanged: version ", (self.version[:12], "digest"), "."
            )
            return
        screen.say(
            "Agent ",
            (self.name, "name"),
            " is stored in ",
            self.store,
            ": version ",
            (self.version[:12], "digest"),
            ".",
        )
        if self.tools:
            screen.say(
                (
                    f"Its tools ({', '.join(self.tools)}) come from code: name it with --code module:name.",
                    "quiet",
                )
            )
        if self.backend:
            code = ("--code", "MODULE:NAME") if self.tools else ()
            screen.suggest(
                "Talk to it: ", "chat", self.name, *code, store=to_be_named(self.store), agent=self.name
            )


def apply(
    *,
    file: Annotated[
        str,
        Parameter(
            name=("--file", "-f"),
            metavar="FILE",
            allow_leading_hyphen=True,
            help="agent.yaml or agent.toml; - is the input, as YAML",
        ),
    ],
    everywhere: Everywhere = EVERYWHERE,
) -> AgentApplyAnswer:
    """Store an agent that is defined in a file

    The same file again changes nothing; a changed one becomes the newest version, and runs record which version
    they used. An unknown field is an error with its line. Threads keep their backend: move them with agents switch.
    """
    name, definition = read_definition(
        _text(file), name=file, toml=file.endswith(".toml"), models=known_models()
    )
    home = _place(definition, file)
    place = home or everywhere.store
    with open_store(place, create=False) as store:
        kept = store.definitions.apply(name, msgspec.structs.replace(definition, object_storage=home))
    return AgentApplyAnswer(
        name=name,
        store=shown_address(place),
        version=kept.digest,
        changed=kept.is_new,
        backend=definition.backend,
        tools=list(definition.tools),
    )


def _text(file: str) -> str:
    body = read_bytes(file, undone="nothing was changed")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise Invalid(
            f"{file} is not UTF-8: {error}; nothing was changed.",
            code="not_utf8",
            file=file,
        ) from error


def _place(definition: Definition, file: str) -> str | None:
    """Return the store that the file names for its agent; a path is relative to the file."""
    place = definition.object_storage
    if place is None or file == "-" or any(scheme in place for scheme in _SCHEMES):
        return place
    return str(Path(file).parent / place)
