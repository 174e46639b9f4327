"""How commands are spelled, and what to say if they are not.

A bare noun means `ls`, and where that needs a thread, the list of its commands; `--store`, `--json` and `--verbose`
may also come before the command.
"""

from __future__ import annotations

import inspect
import os
import shlex
from collections.abc import Callable, Sequence
from typing import cast

from cyclopts import (
    App,
    Argument,
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from perdure.cli.command_list import NOUNS, SPELLINGS
from perdure.cli.options import EVERYWHERE
from perdure.model.names import did_you_mean, near, shown_address

__all__ = ["explained", "named_store", "tidied", "to_be_named", "wants_help", "wants_json", "wants_log"]

_HELP = ("--help", "-h", "--version")
_OF_A_THREAD = ("state", "artifacts", "checkpoints")  # what their `ls` lists
# What other programs call it.
_OTHER_WORDS = {
    "list": "ls", "dir": "ls", "delete": "rm", "remove": "rm", "del": "rm", "set": "put", "write": "put",
    "read": "get", "cat": "get", "new": "begin", "create": "begin", "start": "begin", "history": "log",
    "branch": "fork", "rewind": "undo", "revert": "undo", "tail": "follow", "watch": "follow", "find": "search",
    "remember": "add", "reject": "deny", "stop": "cancel", "check": "verify", "fsck": "verify",
    "reflog": "moves", "timelines": "show", "branches": "show", "update": "edit", "correct": "edit", "settle": "resolve",
}  # fmt: skip
# What is no command, and where it is.
_ELSEWHERE = {
    "version": "Did you mean 'perdure --version'?",
    "metrics": "The server has them at /metrics: 'perdure serve'.",
}
_OTHER_OPTIONS = {"-n": "--limit", "--last": "--limit", "-m": "--reason", "--before": "--at"}


def tidied(words: Sequence[str]) -> list[str]:
    """Return `words` with leading options after the command, `ls` after a bare noun, and help as an option."""
    moved, rest = _leading(list(words))
    if rest[:1] == ["help"]:
        rest = [*rest[1:], "--help"]
    if rest and rest[0] in SPELLINGS and not _has_verb(rest):
        after, others = _leading(rest[1:])
        is_bare = not others and not wants_json([*moved, *after])
        noun = SPELLINGS[rest[0]]
        rest[:1] = [noun, "--help" if is_bare and noun in _OF_A_THREAD else "ls"]
    end = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:end], *moved, *rest[end:]] if rest else moved


def wants_json(words: Sequence[str]) -> bool:
    """True if `words` ask for JSON, even if they are wrong otherwise."""
    return _has(words, "--json")


def wants_help(words: Sequence[str]) -> bool:
    """True if `words` ask for help."""
    return _has(words, "--help") or _has(words, "-h")


def wants_log(words: Sequence[str]) -> bool:
    """True if `words` ask for the log."""
    return _has(words, "--verbose")


def _has(words: Sequence[str], option: str) -> bool:
    end = list(words).index("--") if "--" in words else len(words)
    return option in words[:end]


def named_store(words: Sequence[str]) -> str | None:
    """Return the store that `words` name; None: the one of the environment, or of this directory."""
    for at, word in enumerate(words):
        if word.startswith("--store="):
            return to_be_named(word.removeprefix("--store="))
        if word == "--store":
            return to_be_named(words[at + 1]) if at + 1 < len(words) else None
    return None


def to_be_named(store: str) -> str | None:
    """Return `store` for --store of another command; None: that command finds it without."""
    is_found = store == os.environ.get("PERDURE_STORE", EVERYWHERE.store)
    return None if is_found else shown_address(store)


def explained(app: App, error: CycloptsError) -> tuple[str, str]:
    """Return what is wrong with the words that were typed, and where to look it up."""
    chain = ["perdure", *(error.command_chain or ())]
    hint = f"{' '.join(chain)} --help"
    match error:
        case UnknownCommandError(unused_tokens=[word, *_]):
            names = [name for name in error.app or app if not name.startswith("-")]
            names = [name for name in names if SPELLINGS.get(name, name) == name or len(chain) > 1]
            meant = _meant(chain, word, names)
            return f"'{' '.join(chain)}' has no command '{word}'; nothing was done. {meant}".rstrip(), hint
        case UnknownOptionError(token=token):
            word = token.keyword or token.value
            known = [name for each in error.argument_collection for name in each.names]
            usual = _OTHER_OPTIONS.get(word)
            meant = f"Did you mean '{usual}'?" if usual in known else did_you_mean(word, known).rstrip()
            if word == "--before" and usual in known:
                meant = "Write '--at turn:n~1': it is the moment before turn n."
            return f"'{' '.join(chain)}' has no option {word}; nothing was done. {meant}".rstrip(), hint
        case MissingArgumentError(argument=Argument() as argument):
            hint = _listing(chain, error) if argument.name == "CALL" else hint
            return _missing(" ".join(chain), error, argument), hint
        case UnusedCliTokensError(unused_tokens=[word, *_]):
            meant = _as_option(word, error)
            return (
                f"'{' '.join(chain)}' does not know what to do with '{word}'; nothing was done. {meant}".rstrip(),
                hint,
            )
        case _:
            return f"{str(error).rstrip('.')}; nothing was done.", hint


def _meant(chain: Sequence[str], word: str, names: Sequence[str]) -> str:
    """Return the command that a word may mean: by a synonym, by its noun, or by close spelling."""
    if len(chain) == 1 and word in _ELSEWHERE:
        return _ELSEWHERE[word]
    usual = _OTHER_WORDS.get(word.lower(), "")
    if usual in names:
        return f"Did you mean '{usual}'?"
    verb = usual or word
    of = [name for name, noun in NOUNS.items() if verb in noun.verbs] if len(chain) == 1 else []
    if of:
        spelled = [f"'perdure {name} {verb}'" for name in of[:3]]
        return f"Did you mean {' or '.join(spelled)}?"
    return did_you_mean(word, names, likeness=0.5).rstrip()


def _as_option(word: str, error: CycloptsError) -> str:
    """Return the option of the command that a word without one may be the value of."""
    command = cast("Callable[..., object] | None", error.target)  # pyright: ignore[reportUnknownMemberType]
    known = () if command is None else tuple(inspect.signature(command).parameters)
    option = "turns" if word.isdecimal() else "owner"
    return f"Write --{option} {shlex.quote(word)}." if option in known else ""


def _missing(command: str, error: MissingArgumentError, argument: Argument) -> str:
    """Return which argument is missing, and whether an unknown option may mean it."""
    typed = error.keyword or next((token.keyword for token in argument.tokens if token.keyword), None)
    missing = f"{typed} needs a value" if typed else f"'{command}' needs {argument.name}"
    unknown = [word for word in error.unused_tokens or () if word.startswith("-")]
    meant = next(iter(near(argument.name, unknown)), None) if typed is None else None
    hint = f" You wrote {meant}: did you mean {argument.name}?" if meant else ""
    if typed is None and argument.name == "CALL":
        given = [
            word for word in (error.root_input_tokens or [])[len(command.split()) - 1 :] if word[:1] != "-"
        ]
        missing = f"'{command}' needs THREAD and CALL" + (f", and has only '{given[0]}'" if given else "")
    return f"{missing}; nothing was done.{hint}"


def _listing(chain: Sequence[str], error: MissingArgumentError) -> str:
    """Return the command that lists the calls of which one was not named."""
    thread = next(iter((error.root_input_tokens or [])[len(chain) - 1 :]), "-")
    return f"{' '.join(chain[:-1])} ls{'' if thread.startswith('-') else f' {shlex.quote(thread)}'}"


def _leading(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the options before the command, and the rest."""
    at = 0
    while at < len(words):
        if words[at] in ("--json", "--verbose") or words[at].startswith("--store="):
            at += 1
        elif words[at] == "--store":
            at += 2
        else:
            break
    return words[:at], words[at:]


def _has_verb(words: Sequence[str]) -> bool:
    return len(words) > 1 and (not words[1].startswith("-") or words[1] in _HELP)
