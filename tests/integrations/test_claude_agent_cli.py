"""The real command line of Claude, killed after a payment, with the session store and with and without the guard."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("claude_agent_sdk")

import claude_agent_sdk

from tests.crash.campaign import DEEP

CLI = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
ROOT = Path(__file__).parents[2]


def program(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the program in an environment of its own: no settings, sessions or keys of the user are seen.

    A command line whose program was killed lives on for a while; it is ended with its process group.
    """
    home, output = folder / "home", folder / "output"
    home.mkdir(exist_ok=True)
    with output.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.integrations.claude_program", str(folder), *arguments],
            cwd=ROOT,
            env={"PATH": os.defpath, "HOME": str(home), "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return process.wait(timeout=300), output.read_text()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.skipif(not DEEP, reason="a campaign of make deep: it starts Claude's command line")
@pytest.mark.skipif(not CLI.is_file(), reason="the package has no command line for this platform")
@pytest.mark.parametrize(("how", "paid"), [("guarded", 1), ("unguarded", 2)])
def test_a_session_that_was_killed_after_a_payment_is_resumed(tmp_path: Path, how: str, paid: int) -> None:
    """The payment is made once and the model is told that its outcome is unknown; without the guard, twice."""
    session = str(uuid.uuid4())
    code, output = program(tmp_path, how, session, "begin")
    assert code == -signal.SIGKILL, output
    code, output = program(tmp_path, how, session, "resume")
    assert code == 0, output
    told = json.loads(output.splitlines()[-1])

    assert (tmp_path / "effects").read_text().count("paid") == paid
    assert any("is unknown" in each for each in told["results"]) == (how == "guarded")
    assert told["states"] == (["denied", "unknown"] if how == "guarded" else [])
    assert told["transcript"][-1] == ["assistant", "Done."]
    assert told["verifies"]
