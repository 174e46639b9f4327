"""Asking again, giving up, reading from threads, keeping clients, and what is not installed."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from perdure import Backend
from perdure.errors import Invalid, PerdureError, Unsupported
from perdure.providers import client
from perdure.providers.client import answered
from perdure.providers.transport.blocking_clients import drawn
from perdure.providers.transport.client_cache import held
from perdure.providers.transport.contract import Request
from perdure.providers.transport.errors import (
    AccessRefused,
    BackendUnavailable,
    CutOff,
    RateLimited,
    RequestRejected,
)
from perdure.providers.transport.registry import transport
from tests.coded import raises
from tests.providers.asking import ask

REQUEST = Request("vendor:m", provider="vendor", model="m", body={}, timeout=60.0)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was waited, without waiting."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(client, "sleep", sleep)
    monkeypatch.setattr(client, "_FIRST_SECONDS", 0.5)
    return found


class Vendor:
    """A transport that raises or yields what it is told, one list an attempt."""

    def __init__(self, *attempts: list[bytes | PerdureError]) -> None:
        self.left = list(attempts)

    async def send(self, request: Request) -> AsyncGenerator[bytes]:
        for each in self.left.pop(0):
            if isinstance(each, PerdureError):
                raise each
            yield each


def heard(vendor: Vendor, *, retries: int = 2) -> bytes:
    """All bytes that came."""

    async def go() -> bytes:
        async with aclosing(answered(vendor.send, REQUEST, retries=retries)) as pieces:
            return b"".join([piece async for piece in pieces])

    return asyncio.run(go())


def test_pauses_grow_where_no_wait_is_named(waits: list[float]) -> None:
    """And are never exactly the same for all who ask."""
    vendor = Vendor([BackendUnavailable("x")], [BackendUnavailable("x")], [b"fine"])

    assert heard(vendor) == b"fine"
    assert 0.375 <= waits[0] <= 0.5 < 0.75 <= waits[1] <= 1.0


def test_a_wait_that_is_named_is_kept(waits: list[float]) -> None:
    """To the second."""
    assert heard(Vendor([RateLimited("x", retry_after=7.0)], [b"fine"])) == b"fine"
    assert waits == [7.0]


def test_after_the_last_attempt_the_error_is_raised(waits: list[float]) -> None:
    """The one of that attempt."""
    with raises(BackendUnavailable, "second"):
        heard(
            Vendor([BackendUnavailable("", code="first")], [BackendUnavailable("", code="second")]), retries=1
        )

    assert len(waits) == 1


@pytest.mark.parametrize("error", [RequestRejected("x"), AccessRefused("x"), Invalid("x")], ids=repr)
def test_what_would_fail_again_is_not_repeated(error: PerdureError, waits: list[float]) -> None:
    """Only what is unavailable is asked for again."""
    with pytest.raises(type(error)):
        heard(Vendor([error], [b"fine"]))

    assert waits == []


def test_nothing_is_repeated_after_the_first_byte(waits: list[float]) -> None:
    """It could be said twice."""
    with pytest.raises(CutOff):
        heard(Vendor([b"half", CutOff("x")], [b"fine"]))

    assert waits == []


def test_silence_in_the_middle_is_a_cut() -> None:
    """The time-out counts from the last byte."""

    async def send(request: Request) -> AsyncGenerator[bytes]:
        yield b"half"
        await asyncio.sleep(600)

    async def go() -> None:
        impatient = replace(REQUEST, timeout=0.2)
        async with aclosing(answered(send, impatient, retries=2)) as pieces:
            assert [piece async for piece in pieces]

    with raises(CutOff, "backend_silent", seconds=0.2):
        asyncio.run(go())


def test_a_blocking_iterator_is_read_in_order_and_its_error_raised() -> None:
    """On another thread."""

    def items() -> Iterator[int]:
        assert threading.current_thread() is not threading.main_thread()
        yield from range(200)
        raise KeyError("over")

    async def go(found: list[int]) -> None:
        async for item in drawn(items):
            found.append(item)  # noqa: PERF401  # what came before the error counts

    found: list[int] = []
    with pytest.raises(KeyError, match="over"):
        asyncio.run(go(found))
    assert found == list(range(200))


def test_a_reader_that_leaves_ends_the_thread() -> None:
    """It is not left behind, waiting for room."""
    ended = threading.Event()

    def items() -> Iterator[int]:
        try:
            yield from range(10_000)
        finally:
            ended.set()

    async def go() -> None:
        async with aclosing(drawn(items)) as numbers:
            async for _ in numbers:
                break

    asyncio.run(go())
    assert ended.wait(60)


def test_a_loop_is_not_held_up_by_a_blocking_client() -> None:
    """Other tasks go on: the client waits for one of them."""
    beaten = threading.Event()

    def items() -> Iterator[bool]:
        yield beaten.wait(60)

    async def beat() -> None:
        for _ in range(3):
            await asyncio.sleep(0.01)
        beaten.set()

    async def go() -> list[bool]:
        task = asyncio.create_task(beat())
        found = [item async for item in drawn(items)]
        await task
        return found

    assert asyncio.run(go()) == [True]


def test_a_client_lives_as_long_as_its_loop() -> None:
    """Made once for each loop, closed when the loop shuts down."""
    made: list[object] = []
    closed: list[object] = []

    def make() -> object:
        made.append(object())
        return made[-1]

    async def close(client: object) -> None:
        closed.append(client)

    async def go() -> bool:
        return await held("key", make, close) is await held("key", make, close)

    assert asyncio.run(go())
    assert asyncio.run(go())
    assert len(made) == 2
    assert closed == made


def test_a_format_without_a_transport_is_unsupported() -> None:
    """The error says where transports register."""
    with raises(Unsupported, "transport_not_found", group="perdure.transports"):
        transport("smoke-signals")


@pytest.mark.parametrize(
    ("backend", "package", "extra"),
    [
        ("openai:m", "openai", "openai"),
        ("openai-chat:m", "openai", "openai"),
        ("anthropic:m", "anthropic", "anthropic"),
        ("google:m", "google.genai", "google"),
        ("bedrock:m", "botocore.exceptions", "bedrock"),
        ("mistral:m", "mistralai.client", "mistral"),
        ("foundry:m", "openai", "foundry"),
    ],
)
def test_a_missing_sdk_is_named_with_its_extra(
    backend: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What to install is said, and nothing is sent."""
    parent, _, name = package.rpartition(".")
    monkeypatch.setitem(sys.modules, package, None)
    if parent in sys.modules:
        monkeypatch.delattr(sys.modules[parent], name, raising=False)

    with raises(Unsupported, "package_missing", extra=extra):
        ask(Backend(backend, base_url="http://127.0.0.1:9"))


@pytest.mark.parametrize(
    ("backend", "variable"),
    [
        ("openai:m", "OPENAI_API_KEY"),
        ("groq:m", "GROQ_API_KEY"),
        ("anthropic:m", "ANTHROPIC_API_KEY"),
        ("google:m", "GEMINI_API_KEY"),
    ],
)
def test_a_missing_key_is_named(backend: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the variable that its SDK reads; a key of OpenAI's is sent to no other vendor."""
    for name in ("OPENAI_API_KEY", "GROQ_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    if backend == "groq:m":
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")

    with raises(AccessRefused, "api_key_missing", variable=variable):
        ask(Backend(backend, retries=0))


@pytest.mark.parametrize("backend", ["azure-openai:m", "foundry:m"])
def test_a_server_without_an_address_of_its_own_needs_one(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every resource has another."""
    monkeypatch.delenv("AZURE_INFERENCE_ENDPOINT", raising=False)
    options: dict[str, Any] = {"api_key": "k"}

    code = "address_variable_missing" if backend.startswith("foundry") else "address_missing"
    with raises(Invalid, code):
        ask(Backend(backend, **options))
