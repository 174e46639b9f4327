"""Tools that raise, time out, return too much or nothing sensible, print rubbish, or are cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure import Agent, Store, Thread, aio
from perdure.runtime.session.result import Result
from perdure.testing import Script, say, step, use
from tests.crash.campaign import sized

EFFECTS = ["read_only", "local_write", "external_write"]


def agent(function: Callable[..., Any], *, then: str = "Done.", **options: Any) -> Agent:
    """An agent that uses one tool, which is made of that function, and then speaks."""
    made = perdure.tool(**options)(function)
    return Agent("planner", backend=Script(use(made.name), say(then)), tools=[made])


def told(thread: Thread) -> tuple[str, str]:
    """The status of the only result, and its words."""
    (entry,) = [entry for entry in thread.transcript() if entry.message.tool_results]
    (result,) = entry.message.tool_results
    return result.status, "".join(getattr(block, "text", "") for block in result.content)


def digest_of(reference: str) -> str:
    """The digest that a reference to a result names."""
    return reference.removeprefix("artifact://sha256/")


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_tool_that_raises_gives_the_model_an_error_in_words(store: Store, effect: str) -> None:
    """The run goes on; what reaches further than reading counts as maybe done."""

    def broken() -> str:
        raise ValueError("no such flight")

    thread = store.thread("trip", agent=agent(broken, effect=effect))

    result = thread.run("go")

    status, words = told(thread)
    assert (result.status, result.text, status) == ("succeeded", "Done.", "error")
    assert "no such flight" in words
    assert thread.calls()[0].state == ("failed" if effect == "read_only" else "unknown")


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_tool_that_says_it_did_nothing_has_failed(store: Store, effect: str) -> None:
    """`NotDone` is proof, whatever the effect."""

    def careful() -> str:
        raise perdure.NotDone("sold out")

    thread = store.thread("trip", agent=agent(careful, effect=effect))

    thread.run("go")

    assert thread.calls()[0].state == "failed"
    assert "sold out" in told(thread)[1]


@pytest.mark.parametrize(
    "error", [SystemExit(3), GeneratorExit(), StopIteration(), BaseExceptionGroup("x", [ValueError()])]
)
def test_not_even_an_exit_inside_a_tool_beside_others_ends_the_program(
    store: Store, error: BaseException
) -> None:
    """On a worker thread whatever a tool raises is its outcome."""

    @perdure.tool(effect="read_only")
    def leaves() -> str:
        raise error

    @perdure.tool(effect="read_only")
    def stays() -> str:
        return "here"

    script = Script(step(use("leaves"), use("stays")), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[leaves, stays]))

    result = thread.run("go")

    assert result.text == "Done."
    assert [call.state for call in thread.calls()] == ["failed", "succeeded"]


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_tool_that_takes_too_long_is_cut_off(store: Store, effect: str) -> None:
    """The model is told; the run does not wait for the tool."""
    go_on = threading.Event()

    def slow() -> str:
        go_on.wait()
        return "late"

    thread = store.thread("trip", agent=agent(slow, effect=effect, timeout=0.05))

    result = thread.run("go")
    state = thread.calls()[0].state
    go_on.set()

    assert result.text == "Done."
    assert told(thread)[0] == "error"
    assert state == ("failed" if effect == "read_only" else "unknown")


def test_the_late_result_of_a_tool_that_was_cut_off_is_recorded_as_evidence(store_url: str) -> None:
    """An external write that comes to an end after all is no longer unknown."""
    go_on = threading.Event()

    def slow() -> str:
        go_on.wait()
        return "sent after all"

    store = perdure.open(store_url)
    thread = store.thread("trip", agent=agent(slow, effect="external_write", timeout=0.05))
    thread.run("go")
    other = perdure.open(store_url)

    go_on.set()
    store.close()  # waits for what still runs

    call = other.thread("trip").calls()[0]
    assert call.late
    assert call.state == "succeeded"
    other.close()


def test_an_async_tool_that_takes_too_long_is_stopped(store: Store) -> None:
    """Its own code is cancelled, so nothing of it goes on."""
    ended: list[str] = []

    async def slow() -> str:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            ended.append("stopped")
            raise
        return "late"

    thread = store.thread("trip", agent=agent(slow, effect="read_only", timeout=0.05))

    result = thread.run("go")

    assert (result.text, ended) == ("Done.", ["stopped"])


@pytest.mark.parametrize("kind", ["text", "bytes", "json"])
def test_a_result_of_many_megabytes_is_kept_whole_and_shown_in_part(store: Store, kind: str) -> None:
    """The conversation holds a preview and a reference; the artifact holds every byte: of 50 MB in a deep run."""
    size = sized(5_000_000, 50_000_000)
    given: Any = {"text": "x" * size, "bytes": b"\x00" * size, "json": ["y" * 1_000] * (size // 1_000)}[kind]

    def large() -> Any:
        return given

    thread = store.thread("trip", agent=agent(large, effect="read_only"))

    result = thread.run("go")

    (call,) = thread.calls()
    assert result.text == "Done."
    assert call.result is not None
    assert len(told(thread)[1]) < 100_000
    kept = b"".join(thread.artifacts.get(digest_of(call.result)))
    assert len(kept) >= size
    if kind != "json":
        assert kept == (given if kind == "bytes" else given.encode())


class _Odd:
    """Something that is not JSON."""

    def __repr__(self) -> str:
        return "<odd thing>"


@pytest.mark.parametrize(
    "value",
    [_Odd(), {1: 2}, float("nan"), {"a": {1, 2}}, object, lambda: 1, 2**80, "\ud800lone", b"\xff\xfe", None],
    ids=range(10),
)
def test_a_result_that_is_not_json_is_no_failure(store: Store, value: object) -> None:
    """The effect has happened: it counts as succeeded, and the model is told as much as can be told."""

    def odd() -> Any:
        return value

    thread = store.thread("trip", agent=agent(odd, effect="external_write"))

    result = thread.run("go")

    assert result.text == "Done."
    assert thread.calls()[0].state == "succeeded"
    assert told(thread)[0] == "success"
    assert store.verify().ok


class _Hostile:
    """Something that cannot even be printed."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def test_a_result_that_cannot_be_printed_is_no_failure(store: Store) -> None:
    """Not even its own words are needed."""

    def hostile() -> Any:
        return _Hostile()

    thread = store.thread("trip", agent=agent(hostile, effect="external_write"))

    assert thread.run("go").text == "Done."
    assert thread.calls()[0].state == "succeeded"


def test_escape_sequences_are_kept_as_they_came(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """What a tool prints is its own business; what it returns is data, byte for byte."""
    rubbish = "\x1b[2J\x1b]0;owned\x07\x00\x9b31m\u202e"

    def loud() -> str:
        print(rubbish)
        return rubbish

    thread = store.thread("trip", agent=agent(loud, effect="read_only"))

    assert thread.run("go").text == "Done."

    (call,) = thread.calls()
    assert call.result is not None
    assert b"".join(thread.artifacts.get(digest_of(call.result))).decode() == rubbish
    assert rubbish in capsys.readouterr().out


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_tool_in_a_run_whose_caller_is_cancelled_is_recorded(store_url: str, effect: str) -> None:
    """After `started` a cancelled external write is unknown; what only reads has failed.  The run says why it ended."""

    async def main() -> None:
        inside = asyncio.Event()

        async def slow() -> str:
            inside.set()
            await asyncio.sleep(600)
            return "never"

        async with aio.open(store_url) as store:
            thread = await store.thread("trip", agent=agent(slow, effect=effect))
            task = asyncio.create_task(thread.run("go"))
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())

    with perdure.open(store_url) as store:
        thread = store.thread("trip")
        assert [(run.state, run.why) for run in thread.runs()] == [("failed", "the caller was cancelled")]
        assert thread.calls()[0].state == ("failed" if effect == "read_only" else "unknown")
        assert told(thread)[0] == "error"
        again = store.thread("trip", agent=Agent("planner", backend=Script(say("Next.")))).run("again")
        assert again.text == "Next."
        assert store.verify().ok


def test_results_of_siblings_survive_a_cancellation(store_url: str) -> None:
    """Of three calls side by side two have finished when the run is cancelled: nothing of them is lost."""

    async def main() -> None:
        finished: list[str] = []

        @perdure.tool(effect="external_write")
        async def quick(name: str) -> str:
            finished.append(name)
            return f"done {name}"

        @perdure.tool(effect="external_write")
        async def slow() -> str:
            await asyncio.sleep(600)
            return "never"

        script = Script(step(use("quick", name="a"), use("slow"), use("quick", name="b")), say("Done."))
        async with aio.open(store_url) as store:
            planner = Agent("planner", backend=script, tools=[quick, slow])
            thread = await store.thread("trip", agent=planner)
            task = asyncio.create_task(thread.run("go"))
            while len([call for call in await thread.calls() if call.state == "succeeded"]) < 2:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())

    with perdure.open(store_url) as store:
        states = {call.tool: call.state for call in store.thread("trip").calls()}
        assert states == {"quick": "succeeded", "slow": "unknown"}
        (entry,) = [entry for entry in store.thread("trip").transcript() if entry.message.tool_results]
        assert [result.status for result in entry.message.tool_results] == ["success", "error", "success"]


def test_a_tool_that_is_not_there_is_an_error_in_words(store: Store) -> None:
    """A model that makes a tool up is told so, and goes on."""
    script = Script(use("made_up", x=1), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=script))

    result: Result = thread.run("go")

    assert result.text == "Done."
    assert told(thread)[0] == "error"
    assert thread.calls()[0].state == "failed"


@pytest.mark.parametrize(
    "raw", ["", "{", "[1]", '{"to": 7}', '{"to": "a", "more": 1}', "nul\x00", '{"to": NaN}']
)
def test_arguments_that_do_not_fit_are_refused_before_anything_starts(store: Store, raw: str) -> None:
    """The tool is never called, the call has failed, and the model is told why."""
    called: list[str] = []

    @perdure.tool(effect="external_write")
    def send(to: str) -> str:
        called.append(to)
        return "sent"

    script = Script(use("send", raw=raw), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[send]))

    result = thread.run("go")

    assert (result.text, called) == ("Done.", [])
    assert (thread.calls()[0].state, thread.calls()[0].attempt) == ("failed", 0)


def test_control_a_tool_that_goes_right_is_no_error(store: Store) -> None:
    """What the rows above see as gone wrong is the tool's doing and not the run's."""
    thread = store.thread("trip", agent=agent(lambda: "SK1", effect="external_write", name="find"))

    thread.run("go")

    assert told(thread) == ("success", "SK1")
    assert thread.calls()[0].state == "succeeded"
