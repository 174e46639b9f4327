"""The commands of the how-to about web handlers are run by curl, against a server."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import perdure
from perdure import Agent
from perdure.store.store import Store
from perdure.testing import Script, say, use
from tests.server.client import TOKEN, serving

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "run-from-a-web-handler.md"
RUN_HERE = "<!-- not run: tests/server/test_curl.py runs it against a server -->\n```sh\n"


@perdure.tool(effect="external_write", ask=True)
def order(lamp: str) -> str:
    """Order a lamp."""
    return f"{lamp} is ordered"


def commands(port: int) -> str:
    """The block of the page, for the server of the test; each answer is on a line of its own."""
    block = PAGE.read_text().partition(RUN_HERE)[2].partition("```")[0]
    block = re.sub(r"(?m)^KEY=.*$", f"KEY={shlex.quote(TOKEN)}", block)
    block = re.sub(r"(?m)^SERVER=.*$", f"SERVER=http://127.0.0.1:{port}", block)
    block = re.sub(r"(?m)^api .*/events .*$", "", block)  # it goes on until it is stopped
    return "set -e\n" + re.sub(r"(?m)^(api .*?)(  +#.*)?$", r"\1; echo", block)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_commands_of_the_page_lead_from_a_message_to_a_decided_run(store: Store) -> None:
    """A message runs once, waits, is approved under the name of the credential, and ends; every answer is as the page says."""
    agent = Agent("assistant", backend=Script(use("order", lamp="Luxo"), say("It comes.")), tools=[order])

    with serving(store, agent) as client:
        done = subprocess.run(
            ["bash", "-c", commands(client.port)], capture_output=True, text=True, timeout=60, check=False
        )

    assert (done.returncode, done.stderr) == (0, "")
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    begun, first, again, runs, approvals, decided, resumed, of_thread, transcript, state = answers
    assert (begun["id"], first["status"], first == again) == ("chat-11", "waiting", True)
    assert ([each["state"] for each in runs["runs"]], len(approvals["approvals"])) == (["waiting"], 1)
    assert decided["decision"]["verdict"] == "approve"
    assert (resumed["status"], resumed["text"]) == ("succeeded", "It comes.")
    assert len(of_thread["runs"]) == 1
    assert transcript["messages"][-1]["text"] == "It comes."
    assert (state["thread"], state["paths"]) == ("chat-11", [])
