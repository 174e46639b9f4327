"""Deferred modules: imported when one of their names is used, and not before."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import perdure
from perdure.store.plumbing.handles import deferred


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that is not imported yet."""
    (tmp_path / "deferred_greeting.py").write_text("def greet():\n    return 'hello'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "deferred_greeting", raising=False)
    return "deferred_greeting"


def test_a_deferred_module_is_imported_when_a_name_is_used(module: str) -> None:
    """Making the stand-in imports nothing."""
    stand_in = deferred(module)

    assert module not in sys.modules

    assert stand_in.greet() == "hello"
    assert module in sys.modules


def test_a_name_that_is_replaced_in_the_module_is_seen(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in reads each name from the module, and keeps no copy."""
    stand_in = deferred(module)
    assert stand_in.greet() == "hello"

    monkeypatch.setattr(f"{module}.greet", lambda: "goodbye")

    assert stand_in.greet() == "goodbye"


def test_a_name_that_the_module_lacks_is_an_attribute_error(module: str) -> None:
    """The error is that of the module itself."""
    with pytest.raises(AttributeError) as missing:
        _ = deferred(module).leave

    assert missing.value.name == "leave"


def test_threads_that_use_a_module_first_at_the_same_time_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one thread imports it, the others find it half made; none may take it so."""
    (tmp_path / "slow_module.py").write_text("import time\ntime.sleep(0.3)\nvalue = 7\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module = deferred("slow_module")

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: module.value, range(4)))

    assert found == [7] * 4
    sys.modules.pop("slow_module")


def test_the_names_of_the_package_are_the_public_ones() -> None:
    """What completion offers; names of its own workings are not among them."""
    offered = {name for name in dir(perdure) if not name.startswith("__")}

    assert set(perdure.__all__) <= offered | {"__version__"}
    assert not {"TYPE_CHECKING", "_HOMES", "_MODULES"} & offered


def test_an_attribute_that_is_not_there_is_suggested_once() -> None:
    """The error has no name, from which the interpreter would make a suggestion of its own beside ours."""
    with (
        perdure.open("memory:") as store,
        pytest.raises(AttributeError, match="Did you mean 'put'") as missing,
    ):
        _ = store.thread("a", agent="b").pu  # pyright: ignore[reportAttributeAccessIssue]

    assert missing.value.name is None
