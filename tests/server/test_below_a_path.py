"""The server below a path: mounted in another application, or behind a proxy that takes the path away."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import NamedTuple

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from perdure.store.store import Store
from tests.server.client import TOKEN, Client, assistant, serving


class Place(NamedTuple):
    """Where the server is: what a client sends before each path, and what the browser shows before it."""

    client: Client
    sent: str
    shown: str


def _mounted(server: ASGIApp) -> ASGIApp:
    return Starlette(routes=[Mount("/agents", app=server)])


def _mounted_behind_a_proxy(server: ASGIApp) -> ASGIApp:
    """Mount the server in an application that knows its prefix, and whose proxy takes that prefix away."""
    within = _mounted(server)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await within({**scope, "root_path": "/api"}, receive, send)

    return application


WAYS: dict[str, tuple[Callable[[ASGIApp], ASGIApp] | None, str, str, str]] = {
    "root": (None, "", "", ""),
    "mounted": (_mounted, "", "/agents", "/agents"),
    "proxy": (None, "/agents", "", "/agents"),
    "server knows the prefix": (_mounted, "/api", "/agents", "/api/agents"),
    "application knows the prefix": (_mounted_behind_a_proxy, "", "/agents", "/api/agents"),
}


@pytest.fixture(params=WAYS)
def place(request: pytest.FixtureRequest, store: Store) -> Generator[Place]:
    """A server in each place."""
    within, root_path, sent, shown = WAYS[request.param]
    agent = assistant()
    store.thread("chat", agent=agent).run("Hello", id="m")
    with serving(store, agent, within=within, root_path=root_path) as client:
        yield Place(client, sent, shown)


def test_the_page_names_its_files_where_the_browser_finds_them(place: Place) -> None:
    """Every file that the index of a view names is below the path that the browser shows, and is there."""
    index = place.client.get(f"{place.sent}/threads/chat").body.decode()

    named = re.findall(r'(?:src|href)="([^"]+)"', index)

    assert len(named) == 3
    assert all(each.startswith(f"{place.shown}/") for each in named), named
    for each in named:
        assert place.client.get(place.sent + each.removeprefix(place.shown)).status == 200


def test_requests_and_streams_are_answered_below_the_path(place: Place) -> None:
    """A run and a stream of events work as at the root."""
    run = place.client.post(f"{place.sent}/v1/threads/chat/run", {"text": "Again"})
    events = list(
        place.client.events(f"{place.sent}/v1/threads/chat/run", method="POST", body={"text": "Once more"})
    )

    assert (run.status, run.json["status"]) == (200, "succeeded")
    assert events[-1].data["result"]["status"] == "succeeded"


def test_the_start_link_leads_to_the_page_and_signs_in_below_the_path(place: Place) -> None:
    """The browser is led to the address that it shows, and its cookie is for what is below the path alone."""
    nobody = Client(place.client.port, None)

    entered = nobody.get(f"{place.sent}/?token={TOKEN.replace(' ', '%20')}")

    assert (entered.status, entered.headers["location"]) == (303, f"{place.shown}/")
    assert f"Path={place.shown or '/'};" in entered.headers["set-cookie"]


def test_a_chat_client_finds_pictures_below_the_path(place: Place) -> None:
    """A message names its picture by an address that the browser finds."""
    picture = {"type": "file", "url": "data:image/png;base64,iVBORw0KGgo=", "mediaType": "image/png"}
    message = {"id": "p", "role": "user", "parts": [picture]}
    chat = f"{place.sent}/v1/threads/chat/ai-sdk"
    assert place.client.post(chat, {"message": message}).status == 200

    messages = place.client.get(chat).json["messages"]
    address = next(each for each in messages if each["id"] == "p")["parts"][0]["url"]

    assert address.startswith(f"{place.shown}/v1/artifacts/")
    assert place.client.get(place.sent + address.removeprefix(place.shown)).status == 200
