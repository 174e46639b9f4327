"""The page about curl: its commands, typed into one shell against a real server, print what the page shows."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import perdure
from tests.docs.blocks import ROOT, blocks
from tests.docs.runner import Command, commands, expect
from tests.forked import PIPE, ForkedProcess
from tests.forked import commands as programs
from tests.server.client import WAIT_SECONDS

PAGE = ROOT / "docs" / "how-to" / "call-it-with-curl.md"
_END = "==== ended with"
_MISSING = [name for name in ("bash", "curl", "jq") if shutil.which(name) is None]

pytestmark = pytest.mark.skipif(bool(_MISSING), reason=f"not on the path: {', '.join(_MISSING)}")


@contextmanager
def served(place: Path, code: str) -> Generator[str]:
    """Serve a store with the agents of the page, in a process of its own; yield the address of the server."""
    (place / "app.py").write_text(code, encoding="utf-8")
    perdure.open(place / "agents.db").close()
    command = [
        "-m",
        "perdure",
        "serve",
        "--port",
        "0",
        "--json",
        "--store",
        "agents.db",
        "--code",
        "app:agents",
    ]
    with ForkedProcess(programs(), command, cwd=place, stdout=PIPE, stderr=PIPE) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"].rstrip("/")
        process.terminate()
        process.communicate(timeout=WAIT_SECONDS)


def script(typed: list[Command]) -> str:
    """Return commands as one script, in which a line after each says how it ended."""
    lines = [f'perdure() {{ "{sys.executable}" -m perdure "$@"; }}', "set -o pipefail"]
    for command in typed:
        lines += [command.line, f'echo "{_END} $?"']
    return "\n".join(lines)


def test_the_commands_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    """Run, stream, approve and fork, each with what the page says about it."""
    found = blocks(PAGE.read_text(encoding="utf-8"), PAGE.name)
    (code,) = [block.text for block in found if block.directive("file")]
    typed = [
        command
        for block in found
        if block.language in ("sh", "console") and "test_curl" in (block.directive("not run") or "")
        for command in commands(block.text)
    ]

    with served(tmp_path, code) as url:
        text = script(typed).replace("http://127.0.0.1:7333", url)
        ended = subprocess.run(
            ["bash", "-c", text],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )

    outputs = ended.stdout.split(_END)
    assert len(outputs) == len(typed) + 1, ended.stderr
    for number, command in enumerate(typed):
        output = outputs[number] if number == 0 else outputs[number].partition("\n")[2]
        assert outputs[number + 1].startswith(" 0\n"), (command.line, output, ended.stderr)
        expect(command.line, shown=command.output or "", actual=output)
