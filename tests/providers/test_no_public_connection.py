"""Threads on private servers turn to no vendor's public address, in whatever process they go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.providers.playing import Place, playing
from tests.providers.private_lives import ACTS
from tests.providers.vendors import KEY, VENDORS

HOSTS = {  # Foundry has no address of its own
    "api.openai.com",
    "api.anthropic.com",
    "generativelanguage.googleapis.com",
    "bedrock-runtime.us-east-1.amazonaws.com",
    "api.mistral.ai",
}


class Program:
    """Runs acts of `private_lives`, each in a new process with keys for every vendor."""

    def __init__(self, directory: Path, places: list[Place]) -> None:
        """Keep the store and the record of connections in a directory."""
        self.store, self.log, self.places = directory / "agents.db", directory / "connections", places
        keys = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "MISTRAL_API_KEY")
        self.environment = {**os.environ, **dict.fromkeys(keys, KEY)}

    def __call__(self, act: str) -> dict[str, str]:
        """What an act came to, by thread."""
        assert act in ACTS
        urls = [place.url for place in self.places]
        arguments = ["-m", "tests.providers.private_lives", act, str(self.store), str(self.log), *urls]
        ended = self.process(*arguments)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout or "{}")

    def process(self, *arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
        """Run a new interpreter."""
        return subprocess.run(
            [sys.executable, *arguments],
            input=said,
            capture_output=True,
            text=True,
            check=False,
            env=self.environment,
            timeout=600,
        )

    @property
    def connections(self) -> set[str]:
        """The public hosts that any process turned to."""
        return set(self.log.read_text().split()) if self.log.exists() else set()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """A program, and a private server for each wire format."""
    with ExitStack() as stack:
        yield Program(tmp_path, [stack.enter_context(playing(each.streamed())) for each in VENDORS])


def test_private_threads_open_no_public_connection(program: Program) -> None:
    """They are run, switched, failed over, cut off, and taken up by programs without and with their backends."""
    begun = program("begin")
    program("cut")
    refused = program("bare")
    went_on = program("again")

    assert set(begun.values()) == {"ok"}
    assert set(refused.values()) == {"ServerChanged"}
    assert set(went_on.values()) == {"ok"}
    assert program.connections == set()


def test_a_talk_at_the_terminal_opens_none_either(program: Program) -> None:
    """`holdfast chat` with code that knows the backend by its name."""
    program("begin")
    guard = (
        "import sys; from pathlib import Path; from tests.providers.private_lives import watch; "
        f"watch(Path({str(program.log)!r})); from holdfast.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    thread = f"plain {VENDORS[0].api}"
    named = ("--code", "tests.providers.private_lives:planner", "--thread", thread)

    ended = program.process(
        "-c", guard, "chat", "planner", *named, "--store", str(program.store), said="Go on\n"
    )

    assert ended.returncode == 5, ended
    assert program.connections == set()


def test_the_record_has_every_vendor_that_is_asked(program: Program) -> None:
    """The control: threads on the vendors' own addresses are seen."""
    program("public")

    assert program.connections == HOSTS
