"""A thread as a git repository, for `perdure export --git`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Annotated, TypeAlias

import msgspec
from cyclopts import Parameter

from perdure.cli.answer import Answer
from perdure.cli.options import Everywhere
from perdure.cli.screen import Column, Part, Screen
from perdure.cli.showing import digest
from perdure.cli.stores import reading
from perdure.cli.wording import count
from perdure.cli.working import working
from perdure.threads import gitting
from perdure.threads.gitting import Branch, Written

__all__ = ["Begun", "BranchShape", "Directory", "Follow", "Followed", "Projected", "follow", "project"]

Directory: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--git",
        metavar="DIR",
        help="Write every timeline to a git repository here, or go on with the one there",
    ),
]
Follow: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--follow",
        negative=(),
        show_default=False,
        help="With --git: go on as commits arrive, until interrupted",
    ),
]

_BRANCHES_SHOWN = 20


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
    def of(cls, branch: Branch) -> BranchShape:
        """The branch as programs read it."""
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
    def of(cls, thread: str, directory: str, written: Written) -> Projected:
        """The answer as programs read it."""
        return cls(
            thread=thread,
            git=directory,
            commits=written.commits,
            branches=[BranchShape.of(each) for each in written.branches],
            removed=list(written.removed),
        )

    @property
    def news(self) -> list[BranchShape]:
        """The branches that moved."""
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
                Column("branch", "line", gives_way=True),
                Column("commits", right=True),
                Column("git", "quiet"),
                Column("commit", "digest"),
                Column("last", gives_way=True),
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


class Begun(Projected, frozen=True, kw_only=True):
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
    """Bring the repository to where the thread stands."""
    with reading(everywhere) as store, working("Writing", quiet=everywhere.json) as tell:
        found = store.thread(thread)
        written = gitting.export(found, directory, progress=lambda done: tell("commits", done))
    return Projected.of(thread, directory, written)


def follow(thread: str, directory: str, everywhere: Everywhere) -> Iterator[Projected]:
    """The same, and again as commits arrive."""
    with reading(everywhere) as store:
        with working("Writing", quiet=everywhere.json) as tell:
            following = gitting.follow(
                store.thread(thread), directory, progress=lambda done: tell("commits", done)
            )
            first = next(following)
        yield Begun.of(thread, directory, first)
        for written in following:
            yield Followed.of(thread, directory, written)
