"""Chooses tool names for one target: legal, unique and stable."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from perdure.model.context import Context
from perdure.model.message import ToolCall
from perdure.providers.contract import Loss

__all__ = ["ToolNames", "name_of_call", "names_in"]


class ToolNames:
    """The names of one request; a legal name never changes."""

    def __init__(
        self, names: Iterable[str], legal: str, *, strange: str = r"[^a-zA-Z0-9_-]", length: int = 64
    ) -> None:
        """Names must match `legal` as a whole; in others, what is `strange` becomes `_`."""
        self._legal, self._strange, self._length = re.compile(legal), re.compile(strange), length
        wanted = list(dict.fromkeys(names))
        self._given = {name: name for name in wanted if self._legal.fullmatch(name)}
        self._taken = set(self._given)
        for name in wanted:
            self.of(name)

    @property
    def given(self) -> Mapping[str, str]:
        """Return the names in this request, by their canonical names."""
        return self._given

    @property
    def renamed(self) -> dict[str, str]:
        """Return the canonical names of renamed tools, by their names in this request."""
        return {here: name for name, here in self._given.items() if here != name}

    def of(self, name: str) -> str:
        """Return a tool's name in this request."""
        known = self._given.get(name)
        if known is not None:
            return known
        legal = name if self._legal.fullmatch(name) else self._mended(name)
        made, count = legal, 1
        while made in self._taken:
            count += 1
            made = f"{legal[: self._length - 8]}_{count}"
        self._given[name] = made
        self._taken.add(made)
        return made

    def losses(self, context: Context) -> list[Loss]:
        """Return the tools of a context that are declared under another name."""
        return [
            Loss(
                kind="converted",
                where=f"tools[{at}].name",
                what="tool name",
                why=f"'{tool.name}' is called '{self.of(tool.name)}' here",
            )
            for at, tool in enumerate(context.tools)
            if self.of(tool.name) != tool.name
        ]

    def _mended(self, name: str) -> str:
        made = self._strange.sub("_", name)[: self._length] or "tool"
        return made if self._legal.fullmatch(made) else f"_{made}"[: self._length]


def names_in(context: Context) -> list[str]:
    """Return all tools of a context: those that it declares, and those that its history calls."""
    called = [call.name for message in context.messages for call in message.tool_calls]
    return [*(tool.name for tool in context.tools), *called]


def name_of_call(call: ToolCall, where: str, name_of: Callable[[str], str], losses: list[Loss]) -> str:
    """Return the name of the tool of a call in a request; report in `losses` that it is another one there."""
    name = name_of(call.name)
    if name != call.name:
        losses.append(Loss(kind="repaired", where=where, what="tool name", why=f"it is {name!r} here"))
    return name
