"""A thread stays on the server that its history names, whatever a later process resolves the name to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import perdure
from perdure import Agent, Backend, Route, Store
from perdure.errors import Invalid, RunFailed, ServerChanged
from perdure.model.event import BackendSwitched, RunStarted
from perdure.providers.client import Speaker
from perdure.providers.transport.address import identity
from perdure.testing import Script, say
from tests.providers.asking import asked
from tests.providers.playing import Answer, Place, playing
from tests.providers.test_clients import CLIENTS
from tests.providers.vendors import KEY, VENDORS, Vendor

CHAT = next(vendor for vendor in VENDORS if vendor.api == "openai-chat")
CLAUDE = next(vendor for vendor in VENDORS if vendor.api == "anthropic-messages")
OLLAMA = next(vendor for vendor in VENDORS if vendor.api == "ollama-chat")
VENDOR = "https://api.openai.com/v1"

each_vendor = pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.api)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store in a file."""
    with perdure.open(tmp_path / "agents.db") as opened:
        yield opened


@pytest.fixture
def place() -> Iterator[Place]:
    """A private server."""
    with playing(CHAT.streamed()) as found:
        yield found


@pytest.fixture
def other() -> Iterator[Place]:
    """Another private server."""
    with playing(CHAT.streamed()) as found:
        yield found


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment has what would let a request pass at the vendor."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "MISTRAL_API_KEY"):
        monkeypatch.setenv(name, KEY)


def planner(backend: Any, **more: Any) -> Agent:
    """The same agent on some backend."""
    return Agent("planner", backend=backend, **more)


def refusal(act: Callable[[], object]) -> tuple[str | None, str | None]:
    """The servers that a refused act names: on record, and resolved."""
    with pytest.raises(ServerChanged) as refused:
        act()
    return refused.value.recorded, refused.value.resolved


@each_vendor
def test_a_later_process_without_the_backend_sends_nothing(vendor: Vendor, store: Store) -> None:
    """The bare name would lead to the vendor; the run is refused, and nothing is written."""
    with playing(vendor.streamed()) as place:
        store.thread("t", agent=planner(vendor.at(place))).run("Hi")
        bare = store.thread("t", agent=planner(vendor.backend))
        before = bare.head

        recorded, resolved = refusal(lambda: bare.run("And now?"))

    assert recorded == identity(place.url + vendor.suffix) != resolved
    assert bare.head == before


def test_the_backend_given_again_goes_on(store: Store, place: Place) -> None:
    """Another process, the same server."""
    store.thread("t", agent=planner(CHAT.at(place))).run("Hi")

    store.thread("t", agent=planner(CHAT.at(place))).run("And now?")

    assert len(place.requests) == 2


def test_neither_user_info_nor_query_is_recorded(store: Store, place: Place) -> None:
    """They may hold secrets; the rest of the address is recorded in each run."""
    port = place.url.rpartition(":")[2]
    secret = Backend(CHAT.backend, base_url=f"http://me:hush@127.0.0.1:{port}/v1?token=hush", api_key=KEY)

    thread = store.thread("t", agent=planner(secret))
    thread.run("Hi")

    events = [event for commit in thread.log() for event in commit.events]
    assert [event.server for event in events if isinstance(event, RunStarted)] == [f"{place.url}/v1"]
    assert thread.server == f"{place.url}/v1"
    assert thread.runs()[0].server == f"{place.url}/v1"


@pytest.mark.parametrize("moved", [True, False])
def test_the_address_in_ollama_host_counts(
    moved: bool, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a scheme too; a variable that is unset later, or names another server, moves no conversation."""
    with playing(OLLAMA.streamed()) as place, playing(OLLAMA.streamed()) as other:
        monkeypatch.setenv("OLLAMA_HOST", place.url.removeprefix("http://"))
        thread = store.thread("t", agent=planner(OLLAMA.backend))
        thread.run("Hi")

        monkeypatch.setenv("OLLAMA_HOST", other.url if moved else "")
        recorded, resolved = refusal(lambda: thread.run("And now?"))

    assert (recorded, resolved) == (place.url, other.url if moved else "http://localhost:11434")
    assert (len(place.requests), len(other.requests)) == (1, 0)


@pytest.mark.parametrize("moved", [True, False])
def test_an_address_from_the_environment_counts(
    moved: bool, store: Store, place: Place, other: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that is unset later, or names another server, moves no conversation."""
    monkeypatch.setenv("OPENAI_BASE_URL", f"{place.url}/v1")
    thread = store.thread("t", agent=planner(CHAT.backend))
    thread.run("Hi")

    monkeypatch.setenv("OPENAI_BASE_URL", f"{other.url}/v1") if moved else monkeypatch.delenv(
        "OPENAI_BASE_URL"
    )

    there = f"{other.url}/v1" if moved else VENDOR
    assert refusal(lambda: thread.run("And now?")) == (f"{place.url}/v1", there)
    assert (len(place.requests), len(other.requests)) == (1, 0)


def test_the_environment_may_not_change_in_the_middle_of_a_run(
    store: Store, place: Place, other: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is checked before each step, not only when a run begins."""
    monkeypatch.setenv("OPENAI_BASE_URL", f"{place.url}/v1")

    def move(moment: object) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{other.url}/v1")

    thread = store.thread(
        "t", agent=planner(CHAT.backend, plugins=[perdure.Plugin("mover", before_inference=move)])
    )

    with pytest.raises(RunFailed) as failed:
        thread.run("Hi")

    assert failed.value.run.kind == "ServerChanged"  # pyright: ignore[reportAttributeAccessIssue]
    assert (place.requests, other.requests) == ([], [])


def test_the_address_of_a_client_counts(store: Store, place: Place) -> None:
    """A client of the user's brings its own."""
    client = openai.OpenAI(api_key=KEY, base_url=f"{place.url}/v1")
    store.thread("t", agent=planner(Backend(CHAT.backend, client=client))).run("Hi")

    bare = store.thread("t", agent=planner(CHAT.backend))

    assert refusal(lambda: bare.run("And now?")) == (f"{place.url}/v1", VENDOR)


@each_vendor
def test_a_redirect_to_another_server_is_not_followed(vendor: Vendor, place: Place) -> None:
    """The conversation stays where it was sent."""
    elsewhere = {"location": f"{place.url}/v1/elsewhere"}
    with (
        playing(Answer(status=307, headers=elsewhere)) as sending,
        pytest.raises(perdure.errors.PerdureError),
    ):
        asyncio.run(asked(vendor.at(sending, retries=0)))

    assert place.requests == []
    assert len(sending.requests) == 1


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_of_the_users_follows_none_either(name: str, place: Place) -> None:
    """Sync or async, whatever the client does with other requests."""
    api, make, close = CLIENTS[name]
    vendor = next(each for each in VENDORS if each.api == api)

    async def act(sending: Place) -> None:
        client = make(sending)
        try:
            await asked(Backend(vendor.backend, client=client, retries=0))
        finally:
            await close(client)

    redirect = Answer(status=307, headers={"location": f"{place.url}/v1/elsewhere"})
    with playing(redirect) as sending, pytest.raises(perdure.errors.PerdureError):
        asyncio.run(act(sending))

    assert place.requests == []


def test_a_redirect_names_both_servers(place: Place) -> None:
    """As data; the same server may redirect to another path of its own."""
    with playing(Answer(status=307, headers={"location": f"{place.url}/v1"})) as sending:
        told = refusal(lambda: asyncio.run(asked(CHAT.at(sending))))

    assert told == (sending.url, place.url)


def test_a_redirect_within_the_server_is_followed() -> None:
    """That is the same server still."""
    with playing(Answer(status=307, headers={"location": "/v1/other"}), CHAT.streamed()) as sending:
        asyncio.run(asked(CHAT.at(sending)))

    assert [request.path for request in sending.requests] == ["/v1/chat/completions", "/v1/other"]


def test_another_address_of_the_same_model_is_a_switch_with_a_check(
    store: Store, place: Place, other: Place
) -> None:
    """The report warns of it, the switch is a commit, and the next turn goes there."""
    thread = store.thread("t", agent=planner(CHAT.at(place)))
    thread.run("Hi")

    checked = thread.check_switch(CHAT.at(other))
    report = thread.switch(CHAT.at(other))
    thread.run("And now?")

    item = checked.of("server")
    assert item is not None
    assert (item.mark, item.gate, report.switched) == ("converted", "warn", True)
    events = [event for commit in thread.log() for event in commit.events]
    (switched,) = (event for event in events if isinstance(event, BackendSwitched))
    assert (switched.from_server, switched.to_server) == (f"{place.url}/v1", f"{other.url}/v1")
    assert (len(place.requests), len(other.requests)) == (1, 1)


def test_undoing_a_switch_returns_to_the_former_server(store: Store, place: Place, other: Place) -> None:
    """On the same handle, which knows both."""
    thread = store.thread("t", agent=planner(CHAT.at(place)))
    thread.run("Hi")
    thread.switch(CHAT.at(other))

    thread.undo()
    thread.run("And now?")

    assert (len(place.requests), len(other.requests)) == (2, 0)
    assert thread.server == f"{place.url}/v1"


def test_a_fork_is_where_its_line_was(store: Store, place: Place) -> None:
    """A new line has the server of the old one on record."""
    store.thread("t", agent=planner(CHAT.at(place))).run("Hi")

    fork = store.thread("t", agent=planner(CHAT.backend)).fork("other")

    assert refusal(lambda: fork.run("And now?")) == (f"{place.url}/v1", VENDOR)


def test_a_policy_can_forbid_to_leave_a_server(store: Store, place: Place, other: Place) -> None:
    """The topic has a name like any other."""
    kept = planner(CHAT.at(place), policy=perdure.Policy(block=["server"]))
    thread = store.thread("t", agent=kept)
    thread.run("Hi")

    with pytest.raises(perdure.errors.Refused):
        thread.switch(CHAT.at(other))

    assert thread.server == f"{place.url}/v1"


def test_a_switch_by_name_means_the_backend_that_the_agent_has(
    store: Store, place: Place, other: Place
) -> None:
    """Not the vendor: the object that was given under the name counts."""
    routed = planner(CLAUDE.at(other), route=Route([CHAT.at(place)]))
    thread = store.thread("t", agent=routed)

    thread.switch(CHAT.backend)
    thread.run("Hi")

    assert thread.server == f"{place.url}/v1"
    assert len(place.requests) == 1


def test_a_summariser_by_name_does_not_leave_the_server(store: Store, place: Place) -> None:
    """It would be shown the conversation too."""
    store.thread("t", agent=planner(CHAT.at(place))).run("Hi")
    bare = store.thread("t", agent=Agent("planner"))

    told = refusal(lambda: bare.switch(Script(say("B")), summariser=CHAT.backend))

    assert told == (f"{place.url}/v1", VENDOR)
    assert bare.server == f"{place.url}/v1"


def test_a_fallback_that_is_on_record_elsewhere_is_passed_over(store: Store, place: Place) -> None:
    """A route that names it without its address would send the conversation to the vendor."""
    dead = Backend(CLAUDE.backend, base_url="http://127.0.0.1:9", api_key=KEY, retries=0)
    thread = store.thread("t", agent=planner(dead, route=Route([CHAT.at(place)])))
    thread.run("Hi")
    thread.switch(dead)

    later = store.thread("t", agent=planner(dead, route=Route([CHAT.backend])))
    with pytest.raises(RunFailed):
        later.run("And now?")

    assert later.server == "http://127.0.0.1:9"
    assert len(place.requests) == 1


def test_a_route_records_the_server_of_each_backend(store: Store, place: Place) -> None:
    """What took over is refused later if its address is gone."""
    dead = Backend(CLAUDE.backend, base_url="http://127.0.0.1:9", api_key=KEY, retries=0)
    thread = store.thread("t", agent=planner(dead, route=Route([CHAT.at(place)])))
    thread.run("Hi")

    later = store.thread("t", agent=planner(dead, route=Route([CHAT.backend])))

    assert thread.server == thread.runs()[0].server == f"{place.url}/v1"
    assert refusal(lambda: later.run("And now?")) == (f"{place.url}/v1", VENDOR)


def test_a_model_of_the_programs_own_is_not_replaced_by_the_vendor(store: Store) -> None:
    """Its server is unknown, so the name alone leads nowhere."""
    store.thread("t", agent=planner(Script(say("Hello."), backend=CHAT.backend))).run("Hi")
    bare = store.thread("t", agent=planner(CHAT.backend))

    assert refusal(lambda: bare.run("And now?")) == (None, VENDOR)


def test_a_declared_name_stands_for_the_address(store: Store, place: Place, other: Place) -> None:
    """A server that moves keeps its threads, and only under its name."""
    store.thread("t", agent=planner(CHAT.at(place, server="our-proxy"))).run("Hi")

    store.thread("t", agent=planner(CHAT.at(other, server="our-proxy"))).run("And now?")

    assert len(other.requests) == 1
    unnamed = store.thread("t", agent=planner(CHAT.at(other)))
    assert refusal(lambda: unnamed.run("Hm")) == ("our-proxy", f"{other.url}/v1")


@pytest.mark.parametrize("wrong", ["", "https://proxy.example", "local", "a b"])
def test_a_name_that_could_be_an_address_is_refused(wrong: str) -> None:
    """And so is one that no address belongs to: requests would go to the vendor under its name."""
    with pytest.raises(Invalid):
        Backend("openai:gpt-5.6", base_url="https://proxy.example", server=wrong)
    with pytest.raises(Invalid):
        Backend("openai:gpt-5.6", server="our-proxy")


@pytest.mark.parametrize("wrong", ["proxy.example/v1", "", "ftp://proxy.example", "https://", "http://[::1"])
def test_an_address_without_a_host_is_refused(wrong: str) -> None:
    """The name does not identify a server."""
    with pytest.raises(Invalid):
        Backend("openai:gpt-5.6", base_url=wrong)


@pytest.mark.parametrize(
    ("address", "server"),
    [
        ("HTTPS://Proxy.Example.:443/v1/", "https://proxy.example/v1"),
        ("http://me:pw@[::1]:8000/v1?key=x#y", "http://[::1]:8000/v1"),
        ("http://localhost:80", "http://localhost"),
        ("our-proxy", "our-proxy"),
    ],
)
def test_an_identity_is_scheme_host_port_and_path(address: str, server: str) -> None:
    """However the address is spelled."""
    assert identity(address) == server


@pytest.mark.parametrize(
    ("name", "variables", "server"),
    [
        ("openai:m", {}, VENDOR),
        ("openai:m", {"OPENAI_BASE_URL": "http://a/v1"}, "http://a/v1"),
        ("groq:m", {"OPENAI_BASE_URL": "http://a/v1"}, "https://api.groq.com/openai/v1"),
        ("ollama:m", {}, "http://localhost:11434/v1"),
        ("anthropic:m", {}, "https://api.anthropic.com"),
        ("anthropic:m", {"ANTHROPIC_BASE_URL": "http://a"}, "http://a"),
        ("google:m", {}, "https://generativelanguage.googleapis.com"),
        ("google:m", {"GOOGLE_GEMINI_BASE_URL": "http://a"}, "http://a"),
        ("google:m", {"GOOGLE_GENAI_USE_VERTEXAI": "true"}, "https://aiplatform.googleapis.com"),
        (
            "vertex:m",
            {"GOOGLE_CLOUD_LOCATION": "europe-west4"},
            "https://europe-west4-aiplatform.googleapis.com",
        ),
        ("vertex:m", {"GOOGLE_VERTEX_BASE_URL": "http://a"}, "http://a"),
        ("bedrock:m", {}, "https://bedrock-runtime.us-east-1.amazonaws.com"),
        ("bedrock:m", {"AWS_ENDPOINT_URL": "http://a"}, "http://a"),
        ("bedrock:m", {"AWS_ENDPOINT_URL_BEDROCK_RUNTIME": "http://b"}, "http://b"),
        ("bedrock:m", {"AWS_DEFAULT_REGION": "eu-west-1"}, "https://bedrock-runtime.eu-west-1.amazonaws.com"),
        ("mistral:m", {}, "https://api.mistral.ai"),
        ("foundry:m", {}, "unresolved"),
        ("foundry:m", {"AZURE_INFERENCE_ENDPOINT": "http://a/models"}, "http://a/models"),
        ("local:m", {}, "local"),
    ],
)
def test_the_server_is_where_the_sdk_would_send_to(
    name: str, variables: dict[str, str], server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the variables that each SDK reads."""
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)

    assert Speaker(Backend(name)).server == server


def test_a_turn_that_was_undone_binds_to_no_server(store: Store, place: Place, other: Place) -> None:
    """The same process may give the conversation to another server, where nothing of it is left."""
    store.thread("t", agent=planner(CHAT.at(place))).run("Hi")
    again = store.thread("t", agent=planner(CHAT.at(other)))
    again.undo()

    again.run("Hi")

    assert (len(place.requests), len(other.requests)) == (1, 1)
