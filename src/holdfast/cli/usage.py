"""How commands are spelled, and what to say if they are not.

A bare noun means `ls`; `--store` and `--json` may also stand before the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from cyclopts import App, CycloptsError, UnknownCommandError, UnusedCliTokensError

from holdfast.cli.commands import SPELLINGS

__all__ = ["explained", "in_words_of_the_shell", "named_store", "tidied", "wants_json"]

_HELP = ("--help", "-h", "--version")

# The library speaks to programs; here the same advice in the words of the shell.
_PHRASES = {
    "Create one with `holdfast init`.": "Create one with `holdfast init`, or name another with --store or $HOLDFAST_STORE.",
    "Name its agent= to begin one.": "Begin one with `holdfast threads begin`, or see `holdfast threads ls`.",
    "Begin it again with agent=.": "Begin it again with `holdfast threads begin`.",
    "See what there is with paths(), or give a default.": "See what there is with `holdfast state ls`.",
    "See what there is with paths().": "See what there is with `holdfast state ls`.",
    "See what there is with timelines().": "See what there is with `holdfast threads show`.",
    "See what there is with calls().": "See what there is with `holdfast calls ls`.",
    "See what there is with runs().": "See what there is with `holdfast runs ls`.",
    "See what waits with approvals().": "See what waits with `holdfast approvals ls`.",
    "resume() finishes it, cancel() ends it.": "`holdfast runs resume` finishes it, `holdfast runs cancel` ends it.",
    "Wait for it, or end it with cancel().": "Wait for it, or end it with `holdfast runs cancel`.",
    "resume() or cancel() that run first.": "Use `holdfast runs resume` or `holdfast runs cancel` on that run first.",
    "Use resolve().": "Use `holdfast calls resolve`.",
    "Give the agent that declares it.": "Name the one that declares it with --code.",
    "Give event.cursor of an earlier event.": "Give the cursor of an earlier event.",
    "Any commit can still be reached by undo(to=…) or fork.": "Any commit can still be reached by --at REF, with undo or fork.",
}


def tidied(words: Sequence[str]) -> list[str]:
    """`words` with options behind the command they stood before, and `ls` after a bare noun."""
    moved, rest = _leading(list(words))
    if rest and rest[0] in SPELLINGS and not _has_verb(rest):
        rest.insert(1, "ls")
    end = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:end], *moved, *rest[end:]] if rest else moved


def wants_json(words: Sequence[str]) -> bool:
    """Whether `words` ask for JSON, whatever else is wrong with them."""
    end = list(words).index("--") if "--" in words else len(words)
    return "--json" in words[:end]


def named_store(words: Sequence[str]) -> str | None:
    """The store that `words` name; None: the one of the environment, or of this directory."""
    for at, word in enumerate(words):
        if word.startswith("--store="):
            return word.removeprefix("--store=")
        if word == "--store":
            return words[at + 1] if at + 1 < len(words) else None
    return None


def explained(app: App, error: CycloptsError) -> tuple[str, str]:
    """What is wrong with the words that were typed, and where to look it up."""
    chain = ["holdfast", *(error.command_chain or ())]
    hint = f"{' '.join(chain)} --help"
    match error:
        case UnknownCommandError(unused_tokens=[word, *_]):
            names = [name for name in error.app or app if not name.startswith("-")]
            near = get_close_matches(word, names, n=1, cutoff=0.5)
            did_you_mean = f" Did you mean '{near[0]}'?" if near else ""
            return f"'{' '.join(chain)}' has no command '{word}'; nothing was done.{did_you_mean}", hint
        case UnusedCliTokensError(unused_tokens=[word, *_]):
            return f"'{' '.join(chain)}' does not know what to do with '{word}'; nothing was done.", hint
        case _:
            return f"{str(error).rstrip('.')}; nothing was done.", hint


def in_words_of_the_shell(message: str) -> str:
    """A message of the library for somebody who types commands."""
    for said, meant in _PHRASES.items():
        message = message.replace(said, meant)
    return message


def _leading(words: list[str]) -> tuple[list[str], list[str]]:
    """The options that stand before the command, and the rest."""
    at = 0
    while at < len(words):
        if words[at] == "--json" or words[at].startswith("--store="):
            at += 1
        elif words[at] == "--store":
            at += 2
        else:
            break
    return words[:at], words[at:]


def _has_verb(words: Sequence[str]) -> bool:
    return len(words) > 1 and (not words[1].startswith("-") or words[1] in _HELP)
