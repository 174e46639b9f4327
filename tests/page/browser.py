"""Runs the page in a real browser: Debian's chromium or another one on the path, driven by playwright-core under Node.

Nothing is downloaded here.  `missing()` names what this machine does not have, and tests are skipped with those words.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.page.story import HOSTILE

__all__ = ["PICTURES", "SOURCES", "build_missing", "missing", "play", "serving"]

_ROOT = Path(__file__).parents[2]
SOURCES = _ROOT / "page"
PICTURES = _ROOT / "build" / "page"  # kept after the test, whatever comes of it
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_SECONDS_MAX = 600


def _browser() -> str | None:
    return next((found for name in _BROWSERS if (found := shutil.which(name))), None)


def build_missing() -> str | None:
    """What is missing to build the page; None: nothing is."""
    if shutil.which("node") is None:
        return "no `node` on the path: the page is not built"
    if not (SOURCES / "node_modules" / "vite").is_dir():
        return "no page/node_modules: run `npm install --no-save` in page/"
    return None


def missing() -> str | None:
    """What is missing to run the page in a browser; None: nothing is."""
    return build_missing() or (None if _browser() else f"no browser on the path ({', '.join(_BROWSERS)})")


@contextmanager
def serving(store: str, directory: Path, *sizes: int, below: str | None = None) -> Generator[str]:
    """Serve the story in a process of its own, mounted at the path `below` if there is one; yield the start link."""
    command = [sys.executable, "-m", "tests.page.story", store, str(directory), *map(str, sizes)]
    if below is not None:
        command += ["--below", below]
    with (directory / "server.log").open("w+", encoding="utf-8") as log:
        process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            link = process.stdout.readline().strip()
            log.seek(0)
            assert link, log.read()
            yield link
        finally:
            process.terminate()
            process.communicate(timeout=_SECONDS_MAX)


def play(link: str, directory: Path, scenarios: Sequence[str]) -> dict[str, Any]:
    """Play scenarios one after another; return what each found.  Raises `AssertionError` with those that failed."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    browser = _browser()
    assert browser is not None
    done = subprocess.run(
        ["node", "browser/drive.mjs", link, str(directory), browser, *scenarios],
        cwd=SOURCES,
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
        env=os.environ | {"HOSTILE": json.dumps(HOSTILE)},
        check=False,
    )
    for picture in directory.glob("*.png"):
        shutil.copy(picture, PICTURES / picture.name)
    played = [json.loads(line) for line in done.stdout.splitlines()]
    failed = {each["name"]: each["why"] for each in played if not each["ok"]}
    assert not failed, "\n".join(f"{name}: {why}" for name, why in failed.items())
    assert [each["name"] for each in played] == list(scenarios), done.stderr
    return {each["name"]: each["found"] for each in played}
