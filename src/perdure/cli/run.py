"""Running one command: from the words that were typed to an answer and an exit code.

Whatever goes wrong ends as one message on the error stream.  A traceback is shown only if
PERDURE_DEBUG is set.
"""

from __future__ import annotations

import inspect
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import msgspec
from cyclopts import App, CycloptsError, MissingArgumentError, UnknownOptionError

from perdure.cli import errors, usage
from perdure.cli.app import build, load
from perdure.cli.command_list import SPELLINGS
from perdure.cli.hints import Subject, explain
from perdure.cli.output import streams
from perdure.cli.output.answer import Answer
from perdure.cli.output.screen import Screen, console
from perdure.errors import PerdureError, PerdureWarning
from perdure.shapes.text import safe_json

__all__ = ["run"]

_UNKNOWN_THREAD = "…"  # stands for the thread of a call that was named without it
_INTERRUPTED = 130  # as shells have it: 128 and the number of the signal


def run(words: Sequence[str]) -> int:
    """Run the command in `words`; return the exit code."""
    asked = usage.tidied(words)
    app = build(only=next(iter(asked), None))
    json = usage.wants_json(asked)
    try:
        with _logging(usage.wants_log(asked)):
            code = _run(app, asked)
        sys.stdout.flush()
        return code
    except CycloptsError as error:
        message, hint = usage.explained(app, error)
        errors.report("Usage", message, hint=hint, json=json)
        return errors.USAGE
    except BrokenPipeError:
        return streams.end_without_reader()
    except KeyboardInterrupt:
        errors.report("Interrupted", "stopped before the end, as asked.", json=json)
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001  # the edge: nothing may leave as a traceback
        return _failed(error, Subject(store=usage.named_store(asked)), json=json)


def _run(app: App, words: Sequence[str]) -> int:
    # Help alone shows the usage line, which takes as long to make as the words take to parse.
    if usage.wants_help(words):
        load(app, words)
    does, bound = _parsed(app, words)
    while True:
        about = Subject.of(words, bound.arguments)
        try:
            with _warning(about):
                return _answered(does(*bound.args, **bound.kwargs), words)
        except PerdureError as error:
            try:
                whole = _with_whole_names(error, words, bound.arguments)
            except PerdureError as ambiguous:
                return _failed(ambiguous, about, json=usage.wants_json(words))
            if whole is None:
                return _failed(error, about, json=usage.wants_json(words))
            # The command found nothing under the part that was typed, so it has done nothing yet.  A whole name is
            # not replaced again, so this ends.
            bound.arguments.update(whole)


def _parsed(app: App, words: Sequence[str]) -> tuple[Callable[..., object], inspect.BoundArguments]:
    """Return the command that `words` spell, and its arguments; a call may be named without its thread."""
    try:
        return app.parse_args(words, print_error=False, exit_on_error=False)[:2]
    except UnknownOptionError as error:
        # The library takes the input, -, for an option unless every argument of the command may begin with a hyphen.
        if (error.token.keyword or error.token.value) != "-" or words.count("-") != 1 or "--" in words:
            raise
        last = [*(word for word in words if word != "-"), "--", "-"]
        return app.parse_args(last, print_error=False, exit_on_error=False)[:2]
    except MissingArgumentError:
        if SPELLINGS.get(words[0]) not in ("calls", "approvals"):
            raise
        with_thread = [*words[:2], _UNKNOWN_THREAD, *words[2:]]
        try:
            does, bound, _ = app.parse_args(with_thread, print_error=False, exit_on_error=False)
        except CycloptsError:
            bound = does = None
        if bound is None or does is None:
            raise
        found = _with_its_thread(words, {**bound.arguments, "thread": None})
        if found is None:
            raise
        bound.arguments.update(found)
        return does, bound


def _with_whole_names(
    error: PerdureError, words: Sequence[str], arguments: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the arguments with whole names in the place of what the error could not find; None if there are none."""
    from perdure.cli.input.lookup import whole_names  # it loads the store, which help does not need

    whole = whole_names(error, arguments)
    is_found = (
        whole is not None
        or error.code != "thread_not_found"
        or error.facts.get("thread") != arguments.get("thread")
    )
    return whole if is_found else _with_its_thread(words, arguments)


def _with_its_thread(words: Sequence[str], arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    from perdure.cli.input.lookup import with_its_thread

    return with_its_thread(f"{SPELLINGS.get(words[0], words[0])} {''.join(words[1:2])}", arguments)


def _answered(answer: object, words: Sequence[str]) -> int:
    if isinstance(answer, Iterator):
        return _as_they_come(cast("Iterator[Answer]", answer), words)
    if not isinstance(answer, Answer):
        return 0
    if usage.wants_json(words):
        print(safe_json(msgspec.to_builtins(answer)))
    else:
        answer.show(_screen(words))
    return answer.exit_code


def _as_they_come(answers: Iterator[Answer], words: Sequence[str]) -> int:
    """Print answers one after another, as JSON one a line; return the highest of their exit codes."""
    screen, json, code = _screen(words), usage.wants_json(words), 0
    for answer in answers:
        if json:
            print(safe_json(msgspec.to_builtins(answer), indent=None))
        else:
            answer.show(screen)
        sys.stdout.flush()
        code = max(code, answer.exit_code)
    return code


def _screen(words: Sequence[str]) -> Screen:
    return Screen(console(), store=usage.named_store(words))


def _failed(error: Exception, about: Subject, *, json: bool) -> int:
    if os.environ.get("PERDURE_DEBUG"):
        traceback.print_exception(error)
    name = type(error).__name__
    match error:
        case PerdureError():
            message, advice = explain(error, about)
            name = "Usage" if error.code == "words_missing" else name  # as where the library finds it missing
            errors.report(name, message, advice=advice, code=error.code, facts=error.facts, json=json)
        case OSError(filename=file, strerror=why) if why:
            streams.drop_unwritten()
            errors.report(name, f"{why}{f': {file}' if file else ''}; the command did not finish.", json=json)
        case _:
            message = f"this should not happen ({name}: {error}); the command did not finish."
            errors.report("Bug", message, hint="PERDURE_DEBUG=1 shows where; please report it.", json=json)
    return errors.code_of(error)


@contextmanager
def _logging(is_wanted: bool) -> Generator[None]:
    """Print what happens in the block to the error stream, if that is wanted."""
    if not is_wanted:
        yield
        return
    import logging

    logger, handler = logging.getLogger("perdure"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


@contextmanager
def _warning(about: Subject) -> Generator[None]:
    """Print warnings as sentences on the error stream, with commands in their advice."""
    show_other = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any) -> None:
        if isinstance(message, PerdureWarning):
            text = " ".join(explain(message, about)).rstrip()
            Screen(console(stderr=True)).say(("Warning: ", "warn"), text)
        elif issubclass(category, UserWarning):
            Screen(console(stderr=True)).say(("Warning: ", "warn"), str(message))
        else:
            show_other(message, category, *rest)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
