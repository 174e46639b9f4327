"""What comes from outside and is wrong: it has an answer that says so, and takes nothing from the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from perdure.server import streams
from perdure.server.access import Access
from perdure.server.keys import SERVER
from perdure.store.store import Store
from tests.server.client import WAIT_SECONDS, Client, key

THREAD = "/v1/threads/chat"


@pytest.mark.parametrize("origin", ["http://[", "http://", "//", "http://127.0.0.1:1@evil.example"])
def test_an_origin_that_is_no_address_is_another_site(client: Client, origin: str) -> None:
    """It is compared, not read: a read is answered, a change is refused."""
    nobody = Client(client.port, None)

    assert nobody.get("/healthz", Origin=origin).status == 200
    assert nobody.post("/v1/session", {"key": "x"}, Origin=origin).status == 403


@pytest.mark.parametrize("path", ["/" + "a" * 300, "/assets/" + "a" * 300, "/" + "a/" * 3_000])
def test_a_path_that_no_file_can_have_is_not_found(client: Client, path: str) -> None:
    """The file system refuses such a name; the client gets 404."""
    assert Client(client.port, None).get(path).status == 404


@pytest.mark.parametrize(
    "cursor", ["9" * 5000 + ".0." + "a" * 64, "0.0." + "z" * 64, "0.0." + "é" * 64, "٣.0." + "a" * 64, "x"]
)
def test_a_cursor_that_names_no_place_is_a_problem_in_the_stream(client: Client, cursor: str) -> None:
    """The stream says so and ends."""
    events = list(client.events(f"{THREAD}/events?wait=false&after={quote(cursor)}"))

    assert [(event.type, event.data["code"]) for event in events] == [("error", "cursor_invalid")]


def test_a_stream_that_fails_says_so_and_tells_no_more() -> None:
    """The text of an error that is a defect is not sent."""

    async def failing() -> AsyncIterator[Any]:
        raise ValueError("secret words")
        yield

    async def read() -> list[bytes]:
        return [each async for each in streams.frames(failing())]

    (only,) = asyncio.run(read())

    assert b"server_failed" in only
    assert b"secret words" not in only


@pytest.mark.parametrize(("is_allowed", "sent_more"), [(False, False), (True, True)])
def test_a_busy_stream_asks_whether_its_key_is_still_known(is_allowed: bool, sent_more: bool) -> None:
    """It asks between frames, not only when there is nothing to send; control: a known key reads on."""
    sent: list[bytes] = []

    async def frames() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"event: x\ndata: {}\n\n"

    async def allowed() -> bool:
        return is_allowed

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    async def receive() -> Any:
        await asyncio.sleep(WAIT_SECONDS)

    stream = streams.EventStream(frames(), is_allowed=allowed, check_seconds=0)
    asyncio.run(asyncio.wait_for(stream({"type": "http"}, receive, send), WAIT_SECONDS))

    assert any(sent) is sent_more


def test_the_servers_own_thread_is_in_the_inbox_of_admins_only(client: Client, store: Store) -> None:
    """A reader of the inbox is told of a fork, and not of the request that is recorded for it."""
    reader = Client(client.port, key(store, "vera", "viewer")).events("/v1/events")
    assert next(reader).type == "hello"
    client.post(THREAD + "/fork", {"name": "other"})
    client.post(THREAD + "/undo")

    told: list[str] = []
    for event in reader:
        told += [event.data["thread"]] if event.type == "thread" else []
        if "chat" in told:
            break

    assert SERVER not in told
    assert Access(name="a", roles=("admin",)).sees(SERVER, SERVER, None)
    assert not Access(name="v", roles=("operator", "approver")).sees(SERVER, SERVER, None)
