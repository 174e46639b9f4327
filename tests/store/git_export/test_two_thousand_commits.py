"""A thread with forks, a promote and 2,000 commits, projected twice and once as it grew.

Unless the campaign is the long one, there are 400.
"""

from __future__ import annotations

import subprocess
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from perdure import Store, Thread
from perdure.projections import git as projection
from perdure.store import git_export
from perdure.store.git_export import exporter
from tests.crash.campaign import sized
from tests.store.git_export.looking import branches, clean, git, opened, show

COMMITS = sized(280, 2_000)
WATCHED = sized(120, 600)  # commits whose export is watched for what it holds
STAGES = 8


class Projected(msgspec.Struct, frozen=True):
    """The thread, and the three repositories."""

    thread: Thread
    once: Path
    again: Path
    followed: Path


@pytest.fixture(scope="module")
def projected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Projected]:
    """Many commits with forks, merges, undos, a redo and a promote; followed from the first stage on."""
    home = tmp_path_factory.mktemp("row16")
    with opened(home / "store.db") as store:
        thread = store.thread("long", agent="planner")
        following = None
        for stage in range(STAGES):
            grow(thread, stage)
            following = following or git_export.follow(thread, home / "followed")
            next(following)
        assert following is not None
        following.close()  # type: ignore[attr-defined]
        assert sum(1 for _ in all_commits(store, thread)) >= COMMITS
        git_export.export(thread, home / "once")
        git_export.export(thread, home / "again")
        yield Projected(thread, home / "once", home / "again", home / "followed")


def grow(thread: Thread, stage: int) -> None:
    """A stage of the thread's life: an eighth of the commits, and one thing that moves heads or makes lines."""
    for number in range(COMMITS // STAGES - 10):
        total = stage * COMMITS + number
        with thread.change("step") as change:
            change.say("user", f"Step {total}", id=f"s-{stage}-{number}")
            change.put(f"/items/{total % 40}.json", {"total": total})
            change.put("/price.json", total)
    side = thread.fork(f"side-{stage}", at="HEAD~20")
    for number in range(14):
        side.put(f"/side/{stage}.json", number)
    match stage % 4:
        case 0:
            thread.merge(side)
        case 1:
            thread.undo(3)
            thread.redo()
        case 2:
            thread.promote(side)
        case _:
            thread.undo()
            thread.put("/after-undo", stage)


def all_commits(store: Store, thread: Thread) -> Iterator[str]:
    """Every commit of the thread, undone ones too."""
    space = thread._space
    yield from space.engine.commits(space.name, "", limit=10 * COMMITS)


def test_git_finds_nothing_to_complain_of(projected: Projected) -> None:
    """In none of the three, and nothing dangles."""
    assert [clean(each) for each in (projected.once, projected.again, projected.followed)] == [True] * 3


def test_the_hashes_are_the_same_however_it_was_built(projected: Projected) -> None:
    """Twice at once, and bit by bit while the thread grew, was undone and promoted."""
    once = branches(projected.once)

    assert once == branches(projected.again) == branches(projected.followed)
    names = {hold.head.timeline for hold in projected.thread.timelines()}
    assert set(once) == names
    assert len([name for name in names if name.startswith("main.v")]) == 2


def test_each_branch_stands_at_its_head_and_has_its_lines_commits(projected: Projected) -> None:
    """First parents in git are first parents here, in the same order, all the way down."""
    for hold in projected.thread.timelines():
        log = git(
            projected.once,
            "log",
            "--first-parent",
            "--format=%(trailers:key=Commit,valueonly,separator=)",
            hold.head.timeline,
        )
        line = [each.digest for each in projected.thread.on(hold.head.timeline).log()]
        assert log.split() == line


def test_each_branch_leaves_the_other_where_it_was_forked(projected: Projected) -> None:
    """The merge base in git is the moment of the fork."""
    main = projected.thread.on("side-1")
    for stage in (1, 3, 5, 7):
        side = projected.thread.on(f"side-{stage}")
        base = projected.thread.diff(side.head, "HEAD").base
        found = git(projected.once, "merge-base", "main", f"side-{stage}").strip()
        told = git(projected.once, "log", "-1", "--format=%(trailers:key=Commit,valueonly)", found).strip()
        assert told == base
    assert len(main.log()) == int(git(projected.once, "rev-list", "--first-parent", "--count", "side-1"))


def test_merges_have_both_parents(projected: Projected) -> None:
    """Two were made, and git knows them as merges."""
    merges = git(projected.once, "rev-list", "--merges", "--branches").split()

    parents = {
        each
        for hold in projected.thread.timelines()
        for each in merged_in(projected.thread, hold.head.timeline)
    }
    assert len(merges) == len(parents) == 2


def test_log_diff_and_bisect_work(projected: Projected) -> None:
    """On the repository as it is, and git finds the commit that Perdure finds."""
    target = int(show(projected.once, "state/price.json", "main~30"))
    main = projected.thread
    expected = main.bisect(lambda view: view.get("/price.json", default=0) >= target, good="HEAD~100")

    git(projected.once, "bisect", "start", "main", "main~100")
    script = f'test "$(git show BISECT_HEAD:state/price.json)" -lt {target}'
    git(projected.once, "bisect", "run", "sh", "-c", script)

    found = git(
        projected.once, "log", "-1", "--format=%(trailers:key=Commit,valueonly)", "refs/bisect/bad"
    ).strip()
    git(projected.once, "bisect", "reset")
    assert found == expected.digest
    assert "-1" not in git(projected.once, "log", "--oneline", "-1", "main")
    assert "state/price.json" in git(projected.once, "diff", "--stat", "main~40", "main")


def test_control_a_committer_by_the_clock_makes_other_hashes(
    projected: Projected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: were the clock asked, the comparison above would fail."""
    told = projection.author_of
    seconds = iter(range(10**9, 2 * 10**9))

    def by_the_clock(commit: object) -> tuple[projection.Stamp, projection.Stamp]:
        author, committer = told(commit)  # type: ignore[arg-type]
        return author, msgspec.structs.replace(committer, seconds=next(seconds))

    monkeypatch.setattr(exporter.git, "author_of", by_the_clock)
    git_export.export(projected.thread, tmp_path / "g")

    assert not set(branches(tmp_path / "g").values()) & set(branches(projected.once).values())
    assert clean(tmp_path / "g")


def held_by_us() -> int:
    """The bytes that the export's own modules have asked for since tracing began, and not given back."""
    ours = [tracemalloc.Filter(True, f"*/{each}/*") for each in ("store/git_export", "projections")]
    found = tracemalloc.take_snapshot().filter_traces(ours).statistics("filename")
    return sum(each.size for each in found)


def test_memory_does_not_grow_with_the_history(projected: Projected, tmp_path: Path) -> None:
    """After many further commits the export holds a name of each, and nothing of what was in them."""
    held: list[int] = []

    def look(done: int) -> None:
        if done == 100:
            tracemalloc.start()
        elif done == 100 + WATCHED:
            held.append(held_by_us())
            raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            git_export.export(projected.thread, tmp_path / "g", progress=look)
    finally:
        tracemalloc.stop()

    assert held[0] < WATCHED * 300


def test_control_what_is_kept_would_be_seen() -> None:
    """Control: as many small headers that are not let go are over the limit of the test above."""
    tracemalloc.start()
    try:
        kept = [projection.put_header(f"state/{number}" + "x" * 300, number) for number in range(WATCHED)]
        held = held_by_us()
    finally:
        tracemalloc.stop()

    assert len(kept) == WATCHED
    assert held > WATCHED * 300


def test_it_is_written_by_fast_import_alone(projected: Projected) -> None:
    """No worktree, no index, no hook, and nothing but what git makes and two files of ours."""
    names = {each.name for each in projected.once.iterdir()}

    assert names <= {"HEAD", "config", "objects", "refs", "packed-refs", "logs", "info", "branches"} | {
        "perdure.json",
        "perdure.lock",
    }
    listed = subprocess.run(
        ["git", "-C", str(projected.once), "count-objects", "-v"], capture_output=True, text=True, check=True
    )
    assert "packs: 1\n" in listed.stdout


def merged_in(thread: Thread, timeline: str) -> set[str]:
    """The commits on a line that have two parents."""
    return {each.digest for each in thread.on(timeline).log() if len(each.parents) > 1}
