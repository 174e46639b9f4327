"""The reference page of the command line, made from the commands themselves.

    python -m perdure.cli.reference > docs/reference/cli.md

A test compares the page with what is made here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from inspect import cleandoc
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from cyclopts import App, Argument
from msgspec import UnsetType

from perdure.cli.app import build, load
from perdure.cli.command_list import ALONE, NOUNS
from perdure.cli.output.answer import Answer

__all__ = ["page"]

_INTRODUCTION = """
# The command line

This page is made from the commands themselves by `python -m perdure.cli.reference`.

Verbs are the Python names, and the thread comes first.
A bare noun means `ls`, so `perdure threads` lists threads; where `ls` needs a thread, as in `perdure state`, it shows the commands of the noun.
`perdure thread log` is accepted too.
`--store`, `--json` and `--verbose` may also come before the command.

## The store

The store is `--store`, else `$PERDURE_STORE`, else `./perdure.db`.
Only `init`, `import`, `chat` and `demo` make one, and `serve` one that is no file: a mistyped path never creates anything.

## Moments

Where a command takes a REF, any of these names a moment:

| REF | meaning |
|---|---|
| `3f9a0c…` | a commit, by its digest or the first digits of it (4 or more) |
| `HEAD`, `HEAD~n` | the head of the timeline, or n commits before |
| `turn:n` | the moment after a turn, counted from 1 |
| `turn:n~1`, `turn:n~k` | the moment before that turn, or before the last k turns up to it |
| `version:n` | where the head stood after its n-th move |
| a message id, a run id | the commit that said it; the end of the run |
| `langgraph:1ef0…` | the newest commit of the timeline with that [name](events.md#momentnamed) of another framework |
| a timeline's name | the head of that timeline |

A name that fits two of them is refused.

## Code

A command that needs an agent's tools takes `--code MODULE:NAME`: an `Agent`, a list or a dictionary that holds some, or a module, whose agents are then found by name.
The module is looked for in the current directory first.
Code is loaded only where this option is given; if it cannot be, that is a usage error with its cause, and nothing was done.
What it prints goes to the error stream.

## Exit codes

| code | meaning | errors |
|---|---|---|
| 0 | done | |
| 1 | failed | `RunFailed`, `Unsupported`, and whatever else went wrong |
| 2 | usage | `Usage`, `Invalid` |
| 3 | not found | `NotFound`, `Forgotten` |
| 4 | conflict | `Conflict`, `StaleHead`, `Moved`, `Sealed`, `MergeConflict`, `OpReused`, `Busy`, `Decided`, `WrongStore` |
| 5 | refused | `Refused`, `Held`, `ServerChanged` |
| 6 | corrupt | `Corrupt`, and `verify` if it found a fault |
| 7 | unavailable | `Unavailable`, `InDoubt` |

Errors go to the error stream; with `--json` as `{"error": "NotFound", "code": "thread_not_found", "message": "…", "facts": {"thread": "shopping"}, "hint": "…"}`.
The `code` names the failure and does not change between releases; the `facts` are what the message says, by name; the sentences may be reworded.
`PERDURE_DEBUG=1` adds where in the code it happened.

## JSON

With `--json` a command prints one object, whose fields are listed with the command; `threads follow` and `export --follow` print one a line.
Times are written `2026-01-31T12:00:00.000000Z`, digests in full, and what is not there is null.
A list that was cut short by `--limit` says so in `more`.

## The terminal

Stored text is never sent to the terminal as it is: characters that it might obey are shown by their codes, such as `\\x1b`.
Colour follows `NO_COLOR`, and there is none where the output is not a terminal.
`perdure --install-completion` sets up completion for your shell: it writes a script where the shell looks for it, and adds a line to `~/.bashrc` or `~/.zshrc`; with `--output FILE` it writes that file and nothing else.
It completes commands, options, and what the store has that the line names, else `$PERDURE_STORE` or `./perdure.db`: threads, timelines, commits, runs, calls, approvals, items, artifacts, checkpoints, agents, owners and paths.
An id is completed from the beginning of what listings show of it, which is its end, from its own beginning, and from any other part of four characters.
Ids of a store on a server are not completed: connecting to it takes longer than a person waits for Tab.
A new version of Perdure may have new commands: run it again then.

Two commands ask something: `chat`, for a decision about a call that waits, and `threads rm`.
They ask only where the input and the screen are both a terminal.
Before the question everything that was typed or pasted earlier is discarded, until the keyboard is quiet for a quarter of a second.
Only a word that is shown as a choice and typed after the question is an answer; pasted text, or several lines at once, never is.
A decision may be a letter: `y` or `a` approves, `n` or `d` denies, `e` edits, `l` leaves it for later.
The question shows the ids of the call and of its run, which `calls show` and `runs show` take.
New arguments or a result may be pasted: they are shown, and count once you have typed `confirm`.

At the prompt of `chat` lines that arrive together, such as a paste, are one message.
Where the input is a pipe, each line is a message or a command that begins with `/`, and nothing is asked: a call that needs a decision waits, and `chat` prints the command that decides it.
The next `chat` on the thread goes on with it.

## Who decides

Decisions, resolutions, reconciliations and cancellations are recorded with a name.
Without `--by` it is `os:USER`: the account that the process runs under, as the operating system knows it.
`--by NAME` records what you type instead; it may not begin with `os:`, so the record shows which names the system vouches for.
"""

_WORDS = {
    str: "text",
    int: "number",
    float: "number",
    bool: "true or false",
    NoneType: "null",
    Any: "any JSON",
}


@dataclass(frozen=True)
class _Command:
    """One command on the page."""

    words: tuple[str, ...]
    app: App

    @cached_property
    def options(self) -> list[Argument]:
        """Return the arguments and options in order, without groups."""
        return [each for each in self.app.assemble_argument_collection() if each.show]

    @property
    def usage(self) -> str:
        """Return the usage line."""
        return re.sub(r"^(Usage:)?\s+", "", self.app.usage or "", flags=re.MULTILINE)

    @property
    def answers(self) -> list[type[Answer]]:
        """Return the types of its answers."""
        hints = get_type_hints(self.app.default_command)
        given = hints.get("return")
        inner = get_args(given)[0] if get_origin(given) is Iterator else given
        return [each for each in _alternatives(inner) if issubclass(each, Answer)]


def page() -> str:
    """Return the whole page."""
    shapes: dict[str, type[msgspec.Struct]] = {}
    parts = [cleandoc(_INTRODUCTION)]
    app = build()
    for name, noun in NOUNS.items():
        parts.append(f"## perdure {name}\n\n{noun.line}.")
        parts += [_section(_loaded(app, name, verb), shapes) for verb in noun.verbs]
    parts.append("## Commands without a noun")
    parts += [_section(_loaded(app, name), shapes) for name in ALONE]
    parts.append("## Shapes\n\nThese are parts of several answers.")
    parts += list(_described(shapes))
    return "\n\n".join(parts) + "\n"


def _loaded(app: App, *words: str) -> _Command:
    found = load(app, words)
    assert found is not None, f"there is no command {words}"
    return _Command(words, found)


def _section(command: _Command, shapes: dict[str, type[msgspec.Struct]]) -> str:
    line, *paragraphs = command.app.help.split("\n\n")
    parts = [f"### perdure {' '.join(command.words)}", f"{line}.", f"```text\n{command.usage}\n```"]
    parts += [re.sub(r"(?<=[.:;]) (?=[A-Z])", "\n", paragraph) for paragraph in paragraphs]
    own = [
        each
        for each in command.options
        if each.name not in ("--store", "--json") or command.words == ("demo",)
    ]
    if own:
        rows = [f"| `{_spelled(each)}` | {_help(each)} |" for each in own]
        parts.append("\n".join(["| word or option | meaning |", "|---|---|", *rows]))
    for answer in command.answers:
        parts.append(_fields(answer, shapes, "JSON"))
    return "\n\n".join(parts)


def _described(shapes: dict[str, type[msgspec.Struct]]) -> Iterator[str]:
    """Yield a section for each shape; describing one may add others."""
    described: set[str] = set()
    while waiting := sorted(shapes.keys() - described):
        described.add(waiting[0])
        yield f"### {waiting[0]}\n\n" + _fields(shapes[waiting[0]], shapes, "Fields")


def _fields(shape: type[msgspec.Struct], shapes: dict[str, type[msgspec.Struct]], title: str) -> str:
    hints = get_type_hints(shape)
    rows = [f"| `{name}` | {_kind(hints[name], shapes)} |" for name in shape.__struct_fields__]
    about = cleandoc(shape.__doc__ or "").split("\n\n")[0]
    return "\n".join([f"{title}: {_within(about)}", "", "| field | is |", "|---|---|", *rows])


def _kind(hint: Any, shapes: dict[str, type[msgspec.Struct]]) -> str:
    """Return the type of a field in words."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        name = hint.__name__.removesuffix("Shape")
        shapes[name] = hint
        return f"[{name}](#{name.lower()})"
    inner = [_kind(each, shapes) for each in get_args(hint) if each is not UnsetType]
    if get_origin(hint) is list:
        return f"list of {inner[0]}"
    if get_origin(hint) is dict:
        return f"object of {inner[1]}"
    return " or ".join(dict.fromkeys(inner)) if inner else _WORDS[hint]


def _alternatives(hint: Any) -> list[type]:
    is_union = get_origin(hint) in (Union, UnionType)
    return [each for each in (get_args(hint) if is_union else (hint,)) if isinstance(each, type)]


def _spelled(option: Argument) -> str:
    metavar = option.parameter.metavar
    return f"{option.name} {metavar}" if metavar else option.name


def _help(option: Argument) -> str:
    default = option.field_info.default
    shown = isinstance(default, str | int) and not isinstance(default, bool)
    return f"{option.parameter.help}{f' (default {default})' if shown else ''}"


def _within(sentence: str) -> str:
    """Return a sentence for the place after a colon; words in capitals stay so."""
    return sentence if sentence[1:2].isupper() else sentence[:1].lower() + sentence[1:]


if __name__ == "__main__":
    print(page(), end="")
