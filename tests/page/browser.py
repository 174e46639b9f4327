"""Runs the page in a real browser: Debian's chromium or another one on the path, driven by playwright-core under Node.

Nothing is downloaded here.  `missing()` names what this machine does not have, and tests are skipped with those words.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from tests.crash.campaign import DEEP
from tests.forked import ForkedProcess, commands
from tests.page.story import HOSTILE

__all__ = ["PICTURES", "SOURCES", "Browser", "build_missing", "missing", "serving"]

_ROOT = Path(__file__).parents[2]
SOURCES = _ROOT / "page"
PICTURES = _ROOT / "build" / "page"  # of a failure, and with `PERDURE_DEEP=1` of each step
_BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
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
def serving(store: str, directory: Path, *sizes: int, options: Sequence[str] = ()) -> Generator[str]:
    """Serve the story in a process of its own, with options of its program; yield the start link."""
    command = ["-m", "tests.page.story", store, str(directory), *map(str, sizes), *options]
    with (directory / "server.log").open("w+", encoding="utf-8") as log:
        process = ForkedProcess(commands(), command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=log)
        with process:
            assert process.stdout is not None
            link = process.stdout.readline().strip()
            log.seek(0)
            assert link, log.read()
            yield link
            (directory / "go").touch()  # a run that a scenario left would not end
            process.terminate()
            process.communicate(timeout=_SECONDS_MAX)


class Browser:
    """A real browser that plays scenarios one after another; leaving the block ends it."""

    def __init__(self) -> None:
        program = _browser()
        assert program is not None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._driver = subprocess.Popen(
            ["node", "browser/drive.mjs", program],
            cwd=SOURCES,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def __enter__(self) -> Self:
        """Give the browser itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self._driver.communicate(timeout=_SECONDS_MAX)
        self._errors.close()

    def play(
        self, link: str, directory: Path, scenarios: Sequence[str], *, pictures: bool = DEEP
    ) -> dict[str, Any]:
        """Play scenarios; return what each found.  Raises `AssertionError` with those that failed."""
        played = self._played(link, directory, scenarios, pictures=pictures)
        PICTURES.mkdir(parents=True, exist_ok=True)
        for picture in directory.glob("*.png"):
            shutil.copy(picture, PICTURES / picture.name)
        failed = {each["name"]: each["why"] for each in played if not each["ok"]}
        assert not failed, "\n".join(f"{name}: {why}" for name, why in failed.items())
        assert [each["name"] for each in played] == list(scenarios)
        return {each["name"]: each["found"] for each in played}

    def play_spoiled(self, link: str, directory: Path, scenarios: Sequence[str]) -> dict[str, Any]:
        """Play scenarios while what each is about is broken; return why they failed, or what those found that did not."""
        played = self._played(link, directory, scenarios, pictures=False, spoiled=True)
        return {each["name"]: each.get("why", each.get("found")) for each in played}

    def _played(
        self, link: str, directory: Path, scenarios: Sequence[str], **options: bool
    ) -> list[dict[str, Any]]:
        asked = {"link": link, "directory": str(directory), "names": scenarios, "hostile": HOSTILE}
        assert self._driver.stdin is not None
        assert self._driver.stdout is not None
        self._driver.stdin.write(json.dumps(asked | options) + "\n")
        self._driver.stdin.flush()
        return [json.loads(line) for line in iter(self._driver.stdout.readline, "\n") if line or self._fail()]

    def _fail(self) -> NoReturn:
        """Tell why the driver has ended."""
        self._errors.seek(0)
        raise AssertionError(self._errors.read())
