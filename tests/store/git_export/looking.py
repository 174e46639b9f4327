"""Git as its users have it: asked for what a repository holds."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import perdure
from perdure import Store

__all__ = ["BEGAN", "branches", "clean", "git", "opened", "show", "tree"]

BEGAN = 1_769_860_800_000_000  # 2026-01-31T12:00:00Z in µs


def git(directory: Path, *words: str) -> str:
    """What git answers in `directory`, without the settings of whoever runs the tests."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(directory)}
    ended = subprocess.run(
        ["git", "-C", str(directory), *words], env=environment, capture_output=True, check=False
    )
    assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
    return ended.stdout.decode("utf-8", "surrogateescape")


def branches(directory: Path) -> dict[str, str]:
    """Each branch, and the commit that it is at."""
    lines = git(
        directory, "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads"
    ).splitlines()
    return dict(line.split(" ") for line in lines)


def clean(directory: Path) -> bool:
    """Whether git finds nothing to complain of, not even something that nobody names."""
    return git(directory, "fsck", "--strict", "--full") == ""


def tree(directory: Path, at: str = "main") -> list[str]:
    """The files at a commit."""
    return [name for name in git(directory, "ls-tree", "-r", "-z", "--name-only", at).split("\0") if name]


def show(directory: Path, file: str, at: str = "main") -> str:
    """The content of a file at a commit."""
    return git(directory, "show", f"{at}:{file}")


@contextmanager
def opened(path: Path, *, clock: Callable[[], int] | None = None) -> Generator[Store]:
    """A store whose clock goes a second each time, and whose ids are the same in every run."""
    seconds, numbers = count(BEGAN, 1_000_000), count(1)
    told = clock or (lambda: next(seconds))
    with perdure.open(
        path, durability="process_crash", clock=told, ids=lambda: f"id-{next(numbers)}"
    ) as store:
        yield store
