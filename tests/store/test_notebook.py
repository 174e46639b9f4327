"""The blocking face in a notebook: a real IPython kernel runs the cells, whose thread runs an event loop."""

from __future__ import annotations

import asyncio
import importlib
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent
from perdure.errors import Invalid
from perdure.runtime import event_loop
from perdure.testing import Script, say, use
from tests.coded import raises

_CELL_SECONDS = 120


class Notebook:
    """Runs cells in one kernel, which works in `directory`."""

    def __init__(self, directory: Path, manager: Any, client: Any) -> None:
        self.directory, self._manager, self._client = directory, manager, client

    def cell(self, code: str, *, interrupt_at: Path | None = None) -> str:
        """Run a cell; what it printed, and its error.  `interrupt_at`: press the stop button once this file exists."""
        printed: list[str] = []
        if interrupt_at is not None:
            threading.Thread(target=self._interrupt, args=(interrupt_at,), daemon=True).start()
        self._client.execute_interactive(
            code, timeout=_CELL_SECONDS, output_hook=lambda message: printed.append(_text(message))
        )
        return "".join(printed)

    def _interrupt(self, file: Path) -> None:
        while not file.exists():
            time.sleep(0.01)
        self._manager.signal_kernel(signal.SIGINT)
        _close_client_loop()


def _close_client_loop() -> None:
    """Close the event loop that the client made on this thread and would leave to the garbage collector."""
    loop = importlib.import_module("jupyter_core.utils").ensure_event_loop()
    loop.close()
    asyncio.set_event_loop(None)


def _text(message: Any) -> str:
    content = message["content"]
    return content.get("text", "") + content.get("ename", "") + content.get("evalue", "")


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """A kernel that works in a directory of its own and has run the first cell."""
    manager_module = pytest.importorskip("jupyter_client.manager")
    pytest.importorskip("ipykernel")
    directory = tmp_path_factory.mktemp("notebook")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR"):
            patch.setenv(name, str(directory / "jupyter"))
        manager, client = manager_module.start_new_kernel(kernel_name="python3", cwd=str(directory))
    try:
        begun = Notebook(directory, manager, client)
        assert begun.cell(BEGIN) == ""
        yield begun
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        _close_client_loop()


BEGIN = """
import asyncio, pathlib, time
import perdure
from perdure import Agent
from perdure.testing import Script, say, use
asyncio.get_running_loop()  # raises where no loop runs: then this would prove nothing
"""


def test_the_first_example_works_in_a_notebook(notebook: Notebook) -> None:
    """Open, run with a sync and an async tool, change, iterate, time travel and close, as in any script."""
    printed = notebook.cell("""
@perdure.tool
def weigh(thing: str) -> str:
    "Weigh a thing."
    print("weighing", thing)
    return "2 kg"

@perdure.tool
async def find(thing: str) -> str:
    "Find a thing."
    await asyncio.sleep(0.01)
    return "in the cellar"

script = Script(use("weigh", thing="lamp"), use("find", thing="lamp"), say("It is in the cellar."))
with perdure.open("agents.db") as store:
    thread = store.thread("lamps", agent=Agent("helper", backend=script, tools=[weigh, find]))
    print(thread.run("Where is it?").text)
    with thread.change("note") as change:
        change.put("/place.json", "cellar")
    print([each.id for each in store.threads()], thread.at("HEAD").get("/place.json"))
    print("".join(event.text for event in thread.stream("again") if event.type == "text.delta") or "failed")
""")

    assert "weighing lamp" in printed
    assert "It is in the cellar." in printed
    assert "['lamps'] cellar" in printed
    assert "RunFailed" in printed, "the script has no more to say, and the cell says so"


def test_the_stop_button_stops_a_run_and_records_it(notebook: Notebook) -> None:
    """The cell ends with KeyboardInterrupt once the run's end is stored, and the next cell goes on."""
    printed = notebook.cell(
        """
@perdure.tool(effect="external_write")
async def wait() -> str:
    "Wait."
    pathlib.Path("began").touch()
    await asyncio.sleep(600)

store = perdure.open("stopped.db")
thread = store.thread("slow", agent=Agent("helper", backend=Script(use("wait")), tools=[wait]))
thread.run("go")
""",
        interrupt_at=notebook.directory / "began",
    )

    assert "KeyboardInterrupt" in printed
    assert "failed ['unknown']" in notebook.cell(
        "print(thread.runs()[0].state, [call.state for call in thread.calls()])"
    )


def test_a_loop_that_was_told_to_wait_works_as_a_notebook_does(tmp_path: Path) -> None:
    """`blocking=True` is for other programs with a loop: calls are made on another thread, and the loop waits."""
    threads: list[str] = []

    @perdure.tool(effect="read_only")
    def look() -> str:
        """Look."""
        threads.append(threading.current_thread().name)
        return "seen"

    async def on_loop() -> str:
        agent = Agent("helper", backend=Script(use("look"), say("Done.")), tools=[look])
        with perdure.open(tmp_path / "store.db", blocking=True) as store:
            return store.thread("t", agent=agent).run("go").text

    assert asyncio.run(on_loop()) == "Done."
    assert threads
    assert "MainThread" not in threads


def test_elsewhere_refusing_stays_the_default(tmp_path: Path) -> None:
    """The error says what to type; a loop that waits for one program's calls is no other loop."""

    async def told() -> None:
        perdure.open(tmp_path / "store.db", blocking=True).close()

    async def untold() -> None:
        with raises(Invalid, "blocks_event_loop") as refused:
            perdure.open(tmp_path / "store.db")
        assert "perdure.aio.open" in str(refused.value.advice)
        assert "perdure.open(…, blocking=True)" in str(refused.value.advice)

    asyncio.run(told())
    asyncio.run(untold())


def test_a_shell_at_a_terminal_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython alone, or a shell without a kernel, is not taken for one; a shell with a kernel is, the control."""

    class Module:
        shell: Any = None

        @classmethod
        def get_ipython(cls) -> Any:
            return cls.shell

    monkeypatch.setitem(__import__("sys").modules, "IPython", Module)
    without = event_loop._is_in_kernel()
    Module.shell = type("TerminalInteractiveShell", (), {})()
    terminal = event_loop._is_in_kernel()
    Module.shell = type("ZMQInteractiveShell", (), {"kernel": object()})()

    assert (without, terminal, event_loop._is_in_kernel()) == (False, False, True)
