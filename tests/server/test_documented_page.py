"""The JavaScript of the page about web handlers, under Node, with the events of a real run."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, aio
from perdure.errors import RunFailed
from perdure.model.context import Context
from perdure.model.message import Message, Text
from perdure.providers.contract import Finished, ModelEvent, TextChunk
from perdure.server import streams
from tests.server.test_chat_clients import node

PAGE = Path(__file__).parents[2] / "docs/how-to/run-from-a-web-handler.md"
BROWSER = """
let shown = {}
const thread = "t"
const listening = {}
const renderQuestions = () => {}
const renderStatus = () => {}
const render = (words) => { shown = { ...words } }
const fetch = async () => ({ json: async () => ({ cursor: "0.0.-" }) })
class EventSource { addEventListener(type, listener) { listening[type] = listener } }
"""
DISPATCH = """
for (const [type, data] of JSON.parse(process.argv[2])) listening[type]?.({ data })
console.log(JSON.stringify(Object.values(shown)))
"""


class Interrupted:
    """A model that breaks off in the middle of its first answer."""

    backend = "script:interrupted"

    def __init__(self) -> None:
        """Fail once."""
        self.has_failed = False

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Write three words, and end with them from the second time on."""
        for word in ("one ", "two ", "three"):
            yield TextChunk(word)
        if not self.has_failed:
            self.has_failed = True
            raise RuntimeError("no connection")
        yield Finished(message=Message("assistant", (Text("one two three"),)))


def documented(name: str) -> Any:
    """A function of the documented application."""
    source = PAGE.read_text().rpartition(f"def {name}(")[2].partition("\n\n\n")[0]
    found: dict[str, Any] = {"Any": Any}
    exec(f"def {name}({source}", found)
    return found[name]


async def sent() -> list[tuple[str, str]]:
    """Follow a thread while a run breaks off and is tried again; return the events that a browser gets."""
    found: list[tuple[str, str]] = []
    async with aio.open("memory:") as store:
        thread = await store.thread("t", agent=Agent("helper", backend=Interrupted()))

        async def follow() -> None:
            happenings = thread.follow(after="0.0.-", wait=True)
            async for frame in streams.frames(happenings, place="", show=documented("shown_to_users")):
                lines = dict(line.split(": ", 1) for line in frame.decode().splitlines() if ": " in line)
                found.append((lines["event"], lines["data"]))

        following = asyncio.create_task(follow())
        await asyncio.sleep(0)
        with pytest.raises(RunFailed):
            await thread.run("Count.", id="m1")
        await thread.run("Count.", id="m1")
        while [data for type, data in found if type == "run.finished"] != [
            '{"status":"failed"}',
            '{"status":"succeeded"}',
        ]:
            await asyncio.sleep(0.01)
        following.cancel()
    return found


def shown_by(script: str, events: list[tuple[str, str]], directory: Path) -> list[str]:
    """What the page shows after the events."""
    found = node()
    if found is None:
        pytest.skip("Node is not installed")
    program = directory / "page.mjs"
    program.write_text(BROWSER + script + DISPATCH)
    done = subprocess.run([found, program, json.dumps(events)], capture_output=True, text=True, check=True)
    shown: list[str] = json.loads(done.stdout)
    return shown


def test_words_of_which_no_message_comes_leave_the_page(tmp_path: Path) -> None:
    """An answer that broke off is not left beside the whole one; control: without the rule it is."""
    script = PAGE.read_text().partition("```js\n")[2].partition("```")[0]
    events = asyncio.run(sent())
    careless = script.replace("delete words[writing]", "void words[writing]")

    assert any(type in ("text.delta", "text.so_far") for type, _ in events)
    assert shown_by(script, events, tmp_path) == ["Count.", "one two three"]
    assert careless != script
    assert shown_by(careless, events, tmp_path) == ["Count.", "one two three", "one two three"]
