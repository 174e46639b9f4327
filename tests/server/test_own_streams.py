"""`events(…)` in one's own application: a waiting run brings its question, and what cannot begin has a status."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, aio, errors
from perdure.model.context import Context
from perdure.providers.contract import ModelEvent
from perdure.providers.transport.errors import Trouble, fault
from perdure.runtime.events import Happened, Happening
from perdure.server import events, problem
from perdure.server.problems import problem_of
from perdure.testing import Script, say, use


@perdure.tool(effect="financial", ask=True)
def pay(to: str, euro: int) -> str:
    """Pay an amount."""
    return f"paid {to} {euro}"


def teller() -> Agent:
    """An agent that pays after an approval."""
    return Agent("teller", backend=Script(use("pay", to="ann", euro=5), say("Paid.")), tools=[pay])


async def answered(
    stream: AsyncIterator[Happening], show: Callable[[Happening], object | None] | None = None
) -> tuple[int, list[dict[str, Any]]]:
    """Send a stream to a client that stays; return the status, and the documents that it got."""
    status, body = 0, b""

    async def send(message: Any) -> None:
        nonlocal status, body
        status = message.get("status", status)
        body += message.get("body", b"")

    async def receive() -> Any:
        await asyncio.Event().wait()

    await events(stream, show=show)({"type": "http"}, receive, send)
    lines = [
        line.removeprefix("data: ") for line in body.decode().splitlines() if line.startswith(("data", "{"))
    ]
    return status, [json.loads(line) for line in lines]


def with_thread(work: Callable[[aio.Thread], Any]) -> Any:
    """Return what `work` makes of a new thread."""

    async def main() -> Any:
        async with aio.open("memory:") as store:
            return await work(await store.thread("t", agent=teller()))

    return asyncio.run(main())


def test_a_waiting_run_brings_its_question_and_the_end_has_it_too() -> None:
    """With the arguments, the effect and the expiry, in the shape of `/v1/approvals`."""
    status, told = with_thread(lambda thread: answered(thread.stream("Pay Ann")))

    (asked,) = [each for each in told if each["type"] == "tool.call.suspended"]
    ended = told[-1]["result"]

    assert (status, ended["status"]) == (200, "waiting")
    for approval in (asked["approval"], ended["approvals"][0]):
        assert approval["arguments"] == {"to": "ann", "euro": 5}
        assert (approval["tool"], approval["effect"], approval["thread"]) == ("pay", "financial", "t")
        assert (approval["call"], approval["id"]) == (asked["event"]["call"], asked["event"]["ticket"])
        assert {"message", "expires_at", "action", "resume"} <= approval.keys()


def test_an_application_chooses_what_its_clients_see() -> None:
    """`show` makes the data of an event, and leaves out what it gives None for; without it the key of a call is sent."""

    def show(event: Happening) -> object | None:
        return {"said": event.text} if isinstance(event, Happened) and event.text else None

    async def work(thread: aio.Thread) -> list[Any]:
        await answered(thread.stream("Pay Ann", id="m1"))
        return [await answered(thread.follow(after="0.0.-"), each) for each in (show, None)]

    (_, chosen), (_, whole) = with_thread(work)

    assert chosen == [{"said": "Pay Ann"}]
    assert "idempotency_key" in json.dumps(whole)


def test_a_repeated_input_gives_the_answer_again() -> None:
    """The same id runs nothing: its stream is the last words and the end, with the result or the question."""

    async def work(thread: aio.Thread) -> list[Any]:
        first = await answered(thread.stream("Pay Ann", id="m1"))
        second = await answered(thread.stream("Pay Ann", id="m1"))
        await thread.decide(first[1][-1]["result"]["approvals"][0]["call"], "approve", by="ben")
        await thread.resume()
        third = await answered(thread.stream("Pay Ann", id="m1"))
        return [told for _, told in (second, third)]

    waiting, done = with_thread(work)

    assert [each["type"] for each in waiting] == ["run.ended"]
    assert [each["type"] for each in done] == ["text.so_far", "run.ended"]
    assert waiting[0]["result"]["approvals"][0]["tool"] == "pay"
    assert done[0]["text"] == "Paid."
    assert done[0]["message"] is not None
    assert (done[1]["result"]["text"], done[1]["result"]["approvals"]) == ("Paid.", [])


class Overloaded:
    """A model whose vendor names a machine in its error."""

    backend = "openai-chat:gpt-5.6"

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Fail as the transport does."""
        raise fault(self.backend, Trouble(500, "overloaded at 10.1.2.3"))
        yield


def test_end_users_are_not_told_what_a_vendor_said() -> None:
    """Neither by a document nor by the error that ends a stream; control: operators of the store are told."""

    async def work(thread: aio.Thread) -> list[str]:
        with pytest.raises(errors.RunFailed) as failed:
            await thread.run("Hi", id="m1")
        _, told = await answered(thread.stream("Hi", id="m1"))
        operators = problem_of(failed.value, place="")[0]
        return [problem(failed.value).body.decode(), json.dumps(told[-1]), str(operators)]  # type: ignore[union-attr]

    async def main() -> list[str]:
        async with aio.open("memory:") as store:
            return await work(await store.thread("t", agent=Agent("helper", backend=Overloaded())))

    *shown, operators = asyncio.run(main())

    for text in shown:
        assert "10.1.2.3" not in text
        assert "BackendUnavailable" in text
    assert "10.1.2.3" in operators


def test_a_stream_is_not_told_where_the_store_is(tmp_path: Path) -> None:
    """What ends it is told without the path, as in a problem of any other handler."""
    place = str(tmp_path / "ann" / "web.db")

    async def full() -> AsyncGenerator[Happening]:
        raise errors.Unavailable(f"{place} can only be read.", code="file_read_only", path=place)
        yield

    _, (problem,) = asyncio.run(answered(full()))

    assert problem["code"] == "file_read_only"
    assert str(tmp_path) not in json.dumps(problem)


def test_a_text_that_is_no_cursor_is_a_problem_document() -> None:
    """With its status, not an event after 200."""
    status, (problem,) = with_thread(lambda thread: answered(thread.follow(after="x")))

    assert (status, problem["code"], problem["status"]) == (422, "cursor_invalid", 422)
    assert problem["advice"]


def test_other_words_under_a_known_id_are_a_problem_document() -> None:
    """What keeps a run from beginning is answered before the stream."""

    async def work(thread: aio.Thread) -> Any:
        await answered(thread.stream("Pay Ann", id="m1"))
        return await answered(thread.stream("Pay Ben", id="m1"))

    status, (problem,) = with_thread(work)

    assert (status, problem["code"]) == (409, "input_id_reused")


def test_a_stream_that_waits_has_begun_without_an_event() -> None:
    """Control: `begin` does not wait for the first event of an idle timeline."""

    async def work(thread: aio.Thread) -> list[str]:
        following = thread.follow(wait=True)
        await following.begin()
        await following.begin()
        await thread.run("Pay Ann")
        return [(await anext(following)).type for _ in range(2)]

    assert with_thread(work) == ["message.appended", "run.started"]
