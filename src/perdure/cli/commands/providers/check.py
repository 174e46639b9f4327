"""`perdure providers check`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import Parameter

from perdure import errors
from perdure.cli.errors import CODES
from perdure.cli.input.json_input import GivenFile, read_json
from perdure.cli.options import EVERYWHERE, Everywhere, Format
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import count
from perdure.cli.output.screen import Column, Screen
from perdure.errors import Invalid
from perdure.providers.validator import RULES, BrokenRule
from perdure.providers.validator import check as broken_by

__all__ = ["BrokenShape", "Checked", "check"]

_COLUMNS = (
    Column("rule", "name"),
    Column("level"),
    Column("where", gives_way=True),
    Column("why", gives_way=True),
)


class BrokenShape(msgspec.Struct, frozen=True, kw_only=True):
    """One rule that is broken: its code and level, where in the request, why, and what the API demands."""

    code: str
    level: str
    where: str
    why: str
    demand: str

    @classmethod
    def of(cls, broken: BrokenRule, api: str) -> BrokenShape:
        """Return the broken rule in the shape of --json."""
        demand = next(rule.demand for rule in RULES[api] if rule.code == broken.code)
        return cls(code=broken.code, level=broken.level, where=broken.where, why=broken.why, demand=demand)


class Checked(Answer, frozen=True, kw_only=True):
    """What speaks against a request."""

    file: str
    format: str
    provider: str | None
    ok: bool  # no rule of level error is broken
    rules: int  # that were checked
    broken: list[BrokenShape]

    @property
    def exit_code(self) -> int:
        """Return 0 if the request breaks no known rule of the API."""
        return 0 if self.ok else CODES[errors.Refused]

    def show(self, screen: Screen) -> None:
        """Print a table of what is broken, and the sum."""
        rows = [
            (each.code, (each.level, "bad" if each.level == "error" else "warn"), each.where, each.why)
            for each in self.broken
        ]
        if rows:
            screen.table(_COLUMNS, rows)
        faults = sum(each.level == "error" for each in self.broken)
        doubts = len(self.broken) - faults
        beside = f", with {count(doubts, 'warning')}" if doubts else ""
        if self.ok:
            screen.say(("✓ ", "good"), f"{self.file} keeps the {self.rules} rules of {self.format}{beside}")
        else:
            screen.say(
                ("✗ ", "bad"),
                f"{self.file} has {count(faults, 'error')} by the rules of {self.format}{beside}",
            )


def check(
    file: GivenFile,
    /,
    *,
    format: Format,
    provider: Annotated[
        str | None,
        Parameter(
            metavar="NAME",
            help="The provider of the server, such as groq; the vendor of the format if left out",
        ),
    ] = None,
    model: Annotated[
        str | None, Parameter(metavar="NAME", help="The model, where the request does not name it")
    ] = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Checked:
    """Check a request by the rules of a provider's API

    Nothing is sent and no store is needed. Exits with 5 if a rule of level error is broken; a warning is what
    only some models or servers refuse. The rules are listed in the reference.
    """
    body = read_json(file, undone="nothing was checked")
    if not isinstance(body, dict):
        raise Invalid(
            f"{file} holds no request: it is {type(body).__name__}, not an object; nothing was checked.",
            code="not_a_request",
            file=file,
        )
    broken = broken_by(body, format, provider=provider, model=model)  # pyright: ignore[reportUnknownArgumentType]
    return Checked(
        file=file,
        format=format,
        provider=provider,
        ok=not any(each.level == "error" for each in broken),
        rules=len(RULES[format]),
        broken=[BrokenShape.of(each, format) for each in broken],
    )
