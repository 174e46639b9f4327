"""Threads on private servers turn to no vendor's public address, in whatever process they go on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.providers.forked_lives import live
from tests.providers.playing import Place, playing
from tests.providers.private_lives import ACTS
from tests.providers.vendors import KEY, VENDORS
from tests.runtime.runs.nursery import Nursery, nursery

HOSTS = {  # Foundry has no address of its own
    "api.openai.com",
    "api.anthropic.com",
    "generativelanguage.googleapis.com",
    "bedrock-runtime.us-east-1.amazonaws.com",
    "api.mistral.ai",
}


class Program:
    """Runs acts of `private_lives`, each in a new process with keys for every vendor."""

    def __init__(self, directory: Path, places: list[Place], nest: Nursery) -> None:
        """Keep the store and the record of connections in a directory; the processes are children of `nest`."""
        self._nest = nest
        self.store, self.log, self.places = directory / "agents.db", directory / "connections", places
        keys = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "MISTRAL_API_KEY")
        aws = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": KEY, "AWS_DEFAULT_REGION": "us-east-1"}
        self.environment = {**os.environ, **dict.fromkeys(keys, KEY), **aws}

    def __call__(self, act: str) -> dict[str, str]:
        """What an act came to, by thread."""
        assert act in ACTS
        urls = [place.url for place in self.places]
        arguments = (act, str(self.store), str(self.log), *urls)
        if act != "cut":
            return self._nest.lives(live, self.environment, *arguments)
        ended = self.process("-m", "tests.providers.private_lives", *arguments)  # it ends without an answer
        assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
        return {}

    def process(self, *arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
        """Run a new interpreter."""
        return subprocess.run(
            [sys.executable, *arguments],
            input=said,
            capture_output=True,
            text=True,
            check=False,
            env=self.environment,
            timeout=1_700,
        )

    @property
    def connections(self) -> set[str]:
        """The public hosts that any process turned to."""
        return set(self.log.read_text().split()) if self.log.exists() else set()


@pytest.fixture(scope="module")
def places() -> Iterator[list[Place]]:
    """A private server for each wire format."""
    with ExitStack() as stack:
        yield [stack.enter_context(playing(each.streamed())) for each in VENDORS]


@pytest.fixture(scope="module")
def nest() -> Iterator[Nursery]:
    """A process that has the SDKs imported, and a child for each act."""
    with nursery() as found:
        yield found


@pytest.fixture(scope="module")
def begun(places: list[Place], nest: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a store whose threads were begun on the private servers, without a public connection."""
    program = Program(tmp_path_factory.mktemp("begun"), places, nest)
    assert set(program("begin").values()) == {"ok"}
    assert program.connections == set()
    return program.store.parent


@pytest.fixture
def program(places: list[Place], nest: Nursery, begun: Path, tmp_path: Path) -> Program:
    """A program on a copy of that store."""
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    return Program(tmp_path, places, nest)


def test_private_threads_open_no_public_connection(program: Program) -> None:
    """They are run, switched, failed over, cut off, and taken up by programs without and with their backends."""
    program("cut")
    refused = program("bare")
    went_on = program("again")

    assert set(refused.values()) == {"ServerChanged"}
    assert set(went_on.values()) == {"ok"}
    assert program.connections == set()


def test_a_talk_at_the_terminal_opens_none_either(program: Program) -> None:
    """`perdure chat` with code that knows the backend by its name."""
    guard = (
        "import sys; from pathlib import Path; from tests.providers.private_lives import watch; "
        f"watch(Path({str(program.log)!r})); from perdure.cli import main; sys.exit(main(sys.argv[1:]))"
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
