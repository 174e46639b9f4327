"""What the tests of the surfaces share."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import pytest
from cyclopts import App
from cyclopts.parameter import validate_command

import perdure
from tests.surfaces import paying
from tests.surfaces.shell import Shell, describing_once, shop


@pytest.fixture(scope="package", autouse=True)
def _signatures() -> Generator[None]:
    """Let the commands that are typed in this process have their signatures read once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(App, "assemble_argument_collection", describing_once(App.assemble_argument_collection))
        patch.setattr("cyclopts.core.validate_command", cache(validate_command))
        yield


@pytest.fixture(autouse=True)
def _bank(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees what another one of this process has paid; the bank says that it does not know."""
    monkeypatch.setattr(paying, "ANSWERS", ["dont_know"])
    monkeypatch.setattr(paying, "sent", [])


@pytest.fixture
def empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shell]:
    """A shell in an empty directory, with nothing set in the environment; programs that it imports go with it."""
    monkeypatch.chdir(tmp_path)
    for name in ("PERDURE_STORE", "PERDURE_DEBUG", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    before = set(sys.modules)
    yield Shell(tmp_path, capsys, monkeypatch)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(f"{tmp_path}/"):
            del sys.modules[name]


@pytest.fixture
def house(empty: Shell) -> Shell:
    """A shell in a directory with the store of `paying.house`, whose bank says that it does not know."""
    paying.house(empty.store)
    return empty


@pytest.fixture
def made(empty: Shell) -> Shell:
    """A shell in a directory with the thread of `paying.house`, whose ids are those that Perdure makes."""
    with perdure.open(empty.store) as store:
        store.thread("house", agent=paying.payer, owner="ann").run("Pay the roofer and the cat.", id="m1")
    return empty


@pytest.fixture
def bread(empty: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell in a directory with the store of `paying.cut_off`, whose bank knows that it was done."""
    monkeypatch.setattr(paying, "ANSWERS", ["done"])
    paying.cut_off(empty.store)
    return empty


@pytest.fixture
def shell(empty: Shell) -> Shell:
    """A shell in a directory with the store of `shop`."""
    shop(empty.store)
    return empty
