"""`perdure export`.

A thread as a git repository, for `perdure export --git`.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Annotated, Any, TypeAlias

import msgspec
from cyclopts import Parameter
from msgspec import UNSET

from perdure.cli.completion import in_store
from perdure.cli.input.stores import engine, map_entries, reading
from perdure.cli.options import EVERYWHERE, At, Everywhere, Timeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import digest
from perdure.cli.output.formatting import count
from perdure.cli.output.ledger_words import show_losses
from perdure.cli.output.progress import working
from perdure.cli.output.screen import Column, Part, Screen, console
from perdure.cli.output.streams import for_owner
from perdure.engines.registry import export_tables, open_sql
from perdure.errors import Conflict, Invalid, NotFound
from perdure.model.head import MAIN
from perdure.providers.registry import APIS
from perdure.shapes.conversation import LossShape, losses_of
from perdure.shapes.text import safe_json
from perdure.store import git_export
from perdure.store.git_export import GitBranch, GitExport
from perdure.telemetry.spans import Content

__all__ = [
    "ExportAnswer",
    "Tabled",
    "export",
    "GitFollowAnswer",
    "BranchShape",
    "Directory",
    "Follow",
    "Followed",
    "Projected",
    "SpansWritten",
    "follow_git",
    "project",
]


Directory: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--git",
        metavar="DIR",
        help="Write every timeline to a git repository in this directory, new or existing",
    ),
]
Follow: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--follow",
        negative=(),
        show_default=False,
        help="With --git: keep writing new commits, until interrupted",
    ),
]

_BRANCHES_SHOWN = 20
_OWN_FORMATS = ("sqlite", "otlp")  # beside those of vendors


class BranchShape(msgspec.Struct, frozen=True, kw_only=True):
    """A timeline as a branch."""

    timeline: str
    branch: str
    commit: str
    git: str  # the same commit in git
    commits: int  # on its line
    moved: bool  # by this export
    subject: str  # the first line of that commit in git

    @classmethod
    def of(cls, branch: GitBranch) -> BranchShape:
        """Return the branch in the shape of --json."""
        return cls(
            timeline=branch.timeline,
            branch=branch.name,
            commit=branch.commit,
            git=branch.git,
            commits=branch.commits,
            moved=branch.moved,
            subject=branch.subject,
        )


class Projected(Answer, frozen=True, kw_only=True):
    """What was written to a git repository, and where its branches are now."""

    thread: str
    git: str
    commits: int  # that were written
    branches: list[BranchShape]
    removed: list[str]  # timelines on which nothing is committed any more

    @classmethod
    def of(cls, thread: str, directory: str, written: GitExport) -> Projected:
        """Return the answer in the shape of --json."""
        return cls(
            thread=thread,
            git=directory,
            commits=written.commits,
            branches=[BranchShape.of(each) for each in written.branches],
            removed=list(written.removed),
        )

    @property
    def news(self) -> list[BranchShape]:
        """Return the branches that moved."""
        return [each for each in self.branches if each.moved]

    def show(self, screen: Screen) -> None:
        """Print what was written, the branches, and how to look at them."""
        self._say(screen)
        if not self.branches:
            screen.say(("Nothing is committed yet, so there is no branch.", "quiet"))
            return
        shown = self.branches[:_BRANCHES_SHOWN]
        screen.table(
            [
                Column("branch", "line", is_id=True),
                Column("commits", right=True),
                Column("git", "quiet"),
                Column("commit", "digest"),
                Column("last", gives_way=True, leaves=1),
            ],
            [
                (each.branch, f"{each.commits:,}", each.git[:12], each.commit[:12], each.subject)
                for each in shown
            ],
            indent=2,
        )
        if len(self.branches) > len(shown):
            screen.say((f"  and {len(self.branches) - len(shown)} more", "quiet"))
        screen.say(("Look: ", "quiet"), f"git -C {shlex.quote(self.git)} log --graph --oneline --branches")

    def _say(self, screen: Screen) -> None:
        if self.commits:
            wrote = count(self.commits, "commit")
            screen.say(f"Wrote {wrote} of {self.thread} to ", (self.git, "name"), ".")
        elif self.news or self.removed:
            moved = count(len(self.news) + len(self.removed), "timeline")
            screen.say(f"Moved {moved} of {self.thread} in ", (self.git, "name"), "; no commit was new.")
        else:
            screen.say(("✓ ", "good"), (self.git, "name"), f" is up to date with {self.thread}.")


class GitFollowAnswer(Projected, frozen=True, kw_only=True):
    """The same, of what was there when following began."""

    def show(self, screen: Screen) -> None:
        """Print it, and that there is more to come."""
        super().show(screen)
        screen.say(("Following. Ctrl-C stops it; the same command goes on from here.", "quiet"))


class Followed(Projected, frozen=True, kw_only=True):
    """The same, of what came later."""

    def show(self, screen: Screen) -> None:
        """Print one line for each branch that moved."""
        for each in self.news:
            place: list[Part] = [(each.branch, "line"), f"  {count(each.commits, 'commit')}  "]
            screen.cut(*place, (each.git[:12], "quiet"), "  ", digest(each.commit), f"  {each.subject}")
        for timeline in self.removed:
            screen.say((timeline, "line"), ("  nothing is committed there any more", "quiet"))


def project(thread: str, directory: str, everywhere: Everywhere) -> Projected:
    """Write what the repository lacks of the thread."""
    with reading(everywhere) as store, working("Writing", quiet=everywhere.json) as report_progress:
        found = store.thread(thread)
        written = git_export.export(found, directory, progress=lambda done: report_progress("commits", done))
    return Projected.of(thread, directory, written)


def follow_git(thread: str, directory: str, everywhere: Everywhere) -> Iterator[Projected]:
    """Write what the repository lacks of the thread, and again as commits arrive."""
    with reading(everywhere) as store:
        with working("Writing", quiet=everywhere.json) as report_progress:
            following = git_export.follow(
                store.thread(thread), directory, progress=lambda done: report_progress("commits", done)
            )
            first = next(following)
        yield GitFollowAnswer.of(thread, directory, first)
        for written in following:
            yield Followed.of(thread, directory, written)


_AnyThread: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="THREAD",
        completer=in_store,
        help="The thread's id; all threads if left out with --format sqlite or otlp",
        show_default=False,
    ),
]
_Format: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--format",
        metavar="API",
        help="The wire format, such as openai-chat; or sqlite, for plain tables; or otlp, for spans",
    ),
]
_Output: TypeAlias = Annotated[
    str | None,
    Parameter(name="--output", metavar="FILE", help="The new file that --format writes; needed for sqlite"),
]
_Content: TypeAlias = Annotated[
    Content | None,
    Parameter(
        name="--content",
        help="With --format otlp: whether spans name contents by digest (references) or hold them (text)",
    ),
]
_Model: TypeAlias = Annotated[
    str | None, Parameter(metavar="NAME", help="The model of the request; none if left out")
]
_Send: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--send",
        negative=(),
        show_default=False,
        help="With --format otlp: send the spans where the OTEL_* environment says",
    ),
]


_Sendable: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--sendable",
        negative=(),
        show_default=False,
        help="With a wire format: put in what only a request that is sent needs, such as a user's turn at its end",
    ),
]


class ExportAnswer(Answer, frozen=True, kw_only=True):
    """A thread as a request in a vendor's format, and what is lost on the way."""

    thread: str
    timeline: str
    format: str
    body: dict[str, Any]
    losses: list[LossShape]
    unsendable: list[LossShape]  # what --sendable would mend; an API may refuse the request as it is
    output: str | None  # the new file that has it, too

    def show(self, screen: Screen) -> None:
        """Print the request alone, so that it can be kept in a file, or its file; losses go to the error stream."""
        if self.output is None:
            screen.say(safe_json(self.body))
        else:
            screen.say("Wrote a request of ", self.format, " to ", (self.output, "name"))
        beside = Screen(console(stderr=True))
        if self.losses:
            show_losses(beside, self.losses)
        if self.unsendable:
            mended = "; ".join(dict.fromkeys(each.why for each in self.unsendable))
            beside.wrap(("! ", "warn"), "An API may refuse it as it is. --sendable mends it: ", mended, ".")


class Tabled(Answer, frozen=True, kw_only=True):
    """The views of a store as plain tables in a new SQLite file."""

    thread: str | None  # null: all threads
    output: str
    tables: dict[str, int]  # rows by table

    def show(self, screen: Screen) -> None:
        """Print where they are, and how many rows each has."""
        screen.say("Wrote ", count(len(self.tables), "table"), " to ", (self.output, "name"))
        screen.facts((name, count(rows, "row")) for name, rows in self.tables.items())


class SpansWritten(Answer, frozen=True, kw_only=True):
    """The history of threads as spans, in a new file or here."""

    thread: str | None  # null: all threads
    output: str | None  # null: they are in `requests`, or were sent
    is_sent: bool
    spans: int
    requests: list[dict[str, Any]]  # of OTLP, one for each thread that has spans

    def show(self, screen: Screen) -> None:
        """Print one request a line, so that a collector can read them from a file; or where they are."""
        if self.is_sent:
            screen.say(f"Sent {count(self.spans, 'span')}.")
        if self.output is not None:
            screen.say("Wrote ", count(self.spans, "span"), " to ", (self.output, "name"))
        for request in self.requests:
            screen.say(safe_json(request, indent=None))


def export(
    thread: _AnyThread = None,
    /,
    *,
    format: _Format = None,
    output: _Output = None,
    model: _Model = None,
    content: _Content = None,
    send: _Send = False,
    sendable: _Sendable = False,
    timeline: Timeline = MAIN,
    at: At = None,
    git: Directory = None,
    follow: Follow = False,
    everywhere: Everywhere = EVERYWHERE,
) -> ExportAnswer | Tabled | SpansWritten | Projected | Iterator[Projected]:
    """Export a thread in a vendor's format, to git, as plain tables, or as spans

    With --format the output is a request that holds the conversation as it is; what its format cannot express is
    listed on the error stream. `perdure import` makes a thread of it again. An API may demand more of what it is sent, such as a
    user's turn at the end: --sendable puts that in, and `perdure threads render` shows what a backend would be sent.

    With --git the whole thread becomes a bare git repository: a git commit for each commit, a branch for each
    timeline, messages and state as files. A second export adds only what is new. Perdure never reads it back.

    With --format sqlite the views of the store become plain tables of a new SQLite file, for one
    thread or for all, with packed values unpacked. Any program that reads SQLite can read it.

    With --format otlp the history becomes spans for a tracing system, one OTLP request in JSON a line, with ids that follow
    from the history. With --send they go where the OTEL_* environment says (needs perdure[otel]).
    """
    if sendable and (format is None or format in _OWN_FORMATS):
        raise _refused("--sendable belongs to a wire format", "options_conflict", "Leave it out.")
    if format == "otlp" or content is not None or send:
        return _spans(thread, output, content or "none", everywhere, format=format, is_sent=send)
    if format == "sqlite":
        return _tabled(thread, output, everywhere)
    if thread is None:
        raise _refused("no thread was named", "thread_missing", "Name one: only sqlite and otlp take all.")
    if git is not None:
        if any((format, model, at, output)) or timeline != MAIN:
            advice = "Leave out --format, --model, --output, --timeline and --at."
            raise _refused("--git writes the whole thread", "options_conflict", advice)
        return (follow_git if follow else project)(thread, git, everywhere)
    if follow:
        raise _refused(
            "there is no --follow without --git", "options_conflict", "Name a directory with --git."
        )
    if format is None:
        advice = f"Give --format with one of {', '.join((*APIS, *_OWN_FORMATS))}, or --git DIR."
        raise _refused("no format was named", "format_missing", advice)
    return _request(thread, format, model, timeline, at, everywhere, output=output, sendable=sendable)


def _request(
    thread: str,
    format: str,
    model: str | None,
    timeline: str,
    at: str | None,
    everywhere: Everywhere,
    *,
    output: str | None,
    sendable: bool,
) -> ExportAnswer:
    with reading(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        moment = UNSET if at is None else at
        try:
            sent = found.export(format, model=model, at=moment, sendable=True)
            rendered = sent if sendable else found.export(format, model=model, at=moment)
        except NotFound as error:
            if error.code == "adapter_not_found":
                error.advice += f" Beside requests there are {' and '.join(_OWN_FORMATS)}."
            raise
    with _new_file(output) as file:
        if file is not None:
            file.write(safe_json(rendered.body) + "\n")
    return ExportAnswer(
        thread=thread,
        timeline=timeline,
        format=format,
        body=rendered.body,
        losses=losses_of(rendered.losses),
        unsendable=losses_of([each for each in sent.losses if each not in rendered.losses]),
        output=output,
    )


def _tabled(thread: str | None, output: str | None, everywhere: Everywhere) -> Tabled:
    if output is None:
        advice = "Name a new one with --output FILE."
        raise _refused("--format sqlite writes a file", "output_missing", advice)
    if thread is None:
        with engine(everywhere):
            pass  # raises the usual error if this is no store
    else:
        with reading(everywhere) as store:
            store.thread(thread)
    with closing(open_sql(everywhere.store, entries=map_entries)) as opened:
        written = export_tables(opened, Path(output), thread=thread)
    return Tabled(thread=thread, output=output, tables=written)


def _spans(
    thread: str | None,
    output: str | None,
    content: Content,
    everywhere: Everywhere,
    *,
    format: str | None,
    is_sent: bool,
) -> SpansWritten:
    from perdure.telemetry import otlp_document, send, thread_spans

    if format != "otlp":
        raise _refused("--content and --send belong to --format otlp", "options_conflict", "Leave them out.")
    if is_sent and output is not None:
        raise _refused("--send and --output exclude each other", "options_conflict", "Leave one out.")
    number, requests = 0, list[dict[str, Any]]()
    with (
        reading(everywhere) as store,
        working("Reading", quiet=everywhere.json) as report_progress,
        _new_file(output) as lines,
    ):
        for done, each in enumerate(store.threads() if thread is None else [store.thread(thread)], 1):
            spans = thread_spans(each, content=content)
            number += len(spans)
            if is_sent and spans:
                send(spans)
            elif spans and lines is not None:
                lines.write(safe_json(otlp_document(spans), indent=None) + "\n")
            elif spans:
                requests.append(otlp_document(spans))
            report_progress("threads", done)
    return SpansWritten(thread=thread, output=output, is_sent=is_sent, spans=number, requests=requests)


@contextmanager
def _new_file(path: str | None) -> Generator[IO[str] | None]:
    """Open a file to write, if one is named; raises `Conflict` if it exists."""
    if path is None:
        yield None
        return
    try:
        opened = open(path, "x", encoding="utf-8", opener=for_owner)  # noqa: SIM115  # the error is of the opening alone
    except FileExistsError as error:
        raise Conflict(
            f"{path} exists already; nothing was written.",
            code="file_exists",
            advice="Choose another path.",
            file=str(path),
        ) from error
    with opened:
        yield opened


def _refused(why: str, code: str, advice: str) -> Invalid:
    return Invalid(f"{why}; nothing was written.", code=code, advice=advice)
