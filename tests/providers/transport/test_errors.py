"""What vendors say when they do not answer, sorted."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from perdure.errors import Invalid, NotFound, PerdureError, Refused, Unavailable
from perdure.providers.transport.address import address_for, example_address
from perdure.providers.transport.credentials import NO_KEY
from perdure.providers.transport.errors import (
    AccessRefused,
    BackendUnavailable,
    ContentRefused,
    ContextTooLong,
    RateLimited,
    RequestRejected,
    Trouble,
    fault,
    retry_after,
    unknown_to_sdk,
    unreached,
    words_of,
)


def test_an_address_with_a_version_that_the_sdk_adds_is_named_as_the_fault() -> None:
    """A request to …/v1/v1/messages is not found, and the error says why; another address is not blamed."""
    missing = Trouble(404, "not found")

    doubled, right = (
        fault("anthropic:claude-sonnet-5-5", missing, doubled=f"http://localhost:9000{path}")
        for path in ("/v1", "")
    )

    assert "should not end with /v1" in doubled.message
    assert "/v1" not in right.message


@pytest.mark.parametrize(
    ("api", "of", "server", "address"),
    [
        ("anthropic-messages", "openai-chat", "http://proxy:8000/v1", "http://proxy:8000"),
        ("mistral-chat", "openai-responses", "http://proxy:8000/llm/v1", "http://proxy:8000/llm"),
        ("openai-chat", "anthropic-messages", "http://proxy:8000", "http://proxy:8000/v1"),
        ("openai-chat", "openai-responses", "http://proxy:8000", "http://proxy:8000"),
        ("gemini-generate", "anthropic-messages", "http://proxy:8000/v1", "http://proxy:8000/v1"),
        ("", "openai-chat", "http://proxy:8000/v1", "http://proxy:8000/v1"),
    ],
)
def test_a_server_is_addressed_as_each_sdk_takes_it(api: str, of: str, server: str, address: str) -> None:
    """The SDKs of OpenAI's formats take the version in the address, the others add it."""
    assert address_for(api, server, of=of) == address
    assert example_address(api).endswith("/v1") == api.startswith("openai")


@pytest.mark.parametrize(
    ("status", "said", "kind", "family"),
    [
        (401, "invalid x-api-key", AccessRefused, Refused),
        (403, "not allowed", AccessRefused, Refused),
        (400, "API key not valid. Please pass a valid API key.", AccessRefused, Refused),
        (429, "insufficient_quota: You exceeded your current quota", AccessRefused, Refused),
        (400, "Your credit balance is too low", AccessRefused, Refused),
        (429, "rate_limit_error", RateLimited, Unavailable),
        (500, "server_error", BackendUnavailable, Unavailable),
        (503, "UNAVAILABLE", BackendUnavailable, Unavailable),
        (529, "overloaded_error", BackendUnavailable, Unavailable),
        (408, "timeout", BackendUnavailable, Unavailable),
        (None, "", BackendUnavailable, Unavailable),
        (404, "model not found", NotFound, NotFound),
        (400, "context_length_exceeded", ContextTooLong, Invalid),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", ContextTooLong, Invalid),
        (
            400,
            "The input token count (9) exceeds the maximum number of tokens allowed (8).",
            ContextTooLong,
            Invalid,
        ),
        (400, "ValidationException: Input is too long for requested model.", ContextTooLong, Invalid),
        (
            400,
            "Prompt contains 9 tokens, too large for model with 8 maximum context length",
            ContextTooLong,
            Invalid,
        ),
        (
            400,
            "exceed_context_size_error: request exceeds the available context size",
            ContextTooLong,
            Invalid,
        ),
        (413, "request_too_large", ContextTooLong, Invalid),
        (
            400,
            "content_filter: The response was filtered: ResponsibleAIPolicyViolation",
            ContentRefused,
            Refused,
        ),
        (400, "Unsupported parameter: 'max_tokens'", RequestRejected, Invalid),
        (422, "extra fields", RequestRejected, Invalid),
    ],
)
def test_each_is_what_a_caller_would_treat_it_as(
    status: int | None, said: str, kind: type[PerdureError], family: type[PerdureError]
) -> None:
    """By the status, and by the vendor's words where the status does not tell."""
    found = fault("vendor:m", Trouble(status, said))

    assert type(found) is kind
    assert isinstance(found, family)
    assert "vendor:m" in str(found)


@pytest.mark.parametrize(
    "key",
    [
        "sk-proj-abcdefghijkl",
        "sk-ant-api03-abcdefghijkl",
        "AIzaSyA1234567890abcdefghij",
        "AKIAIOSFODNN7EXAMPLE",
        "Bearer abc.def.ghi",
        "gsk_abcdefghijkl",
        "my-own-company-key",
    ],
)
@pytest.mark.parametrize("status", [400, 403, 404, 429, 500])
def test_a_key_is_left_out_of_the_words(key: str, status: int) -> None:
    """Whether it looks like one, or is the one that was sent."""
    said = str(fault("vendor:m", Trouble(status, f"you sent {key} to us"), secret="my-own-company-key"))

    assert key.removeprefix("Bearer ") not in said


def test_a_key_of_the_environment_is_left_out_of_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK reads such a key itself, so the program passes none; control: other variables are left in."""
    monkeypatch.setenv("MISTRAL_API_KEY", "k7Qw0pLm2xZr")
    monkeypatch.setenv("SOME_PLACE", "on-the-moon")

    said = str(fault("mistral:m", Trouble(500, "k7Qw0pLm2xZr was sent on-the-moon")))

    assert ("k7Qw0pLm2xZr" in said, "on-the-moon" in said) == (False, True)


def test_a_key_is_left_out_of_what_an_sdk_stumbled_over() -> None:
    """The words of its error may repeat the request."""
    error = unknown_to_sdk("google:gemini", TypeError("bad header 'my-secret-key'"), secret="my-secret-key")

    assert "TypeError: bad header" in str(error)
    assert "my-secret-key" not in f"{error} {error.facts}"


def test_the_user_and_the_query_of_an_address_are_left_out_of_the_words() -> None:
    """botocore names the whole address that it could not reach; host and path are left in."""
    why = ConnectionError('Could not connect to "https://me:xyzzy@llm.example:8443/v1/model?code=xyzzy"')

    said = str(unreached("bedrock:m", why, begun=False))

    assert "https://llm.example:8443/v1/model?[left out]" in said
    assert "xyzzy" not in said


def test_what_a_vendor_says_is_shortened() -> None:
    """A page of HTML is no message."""
    assert len(str(fault("vendor:m", Trouble(502, "<html>" * 1_000)))) < 1_000


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
    ],
    ids=str,
)
def test_the_wait_is_read_from_the_headers(headers: dict[str, str], seconds: float | None) -> None:
    """In either of the two spellings; what cannot be read is no wait."""
    assert retry_after(headers) == seconds


def test_a_wait_may_be_a_date() -> None:
    """As HTTP allows."""
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)

    assert 25 < (retry_after({"retry-after": later}) or 0) <= 30


def test_the_wait_is_an_attribute() -> None:
    """And survives a process boundary."""
    found = pickle.loads(pickle.dumps(fault("vendor:m", Trouble(429, "slow", 7.0))))  # noqa: S301

    assert isinstance(found, RateLimited)
    assert found.retry_after == 7.0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (None, ""),
        ("plain", "plain"),
        ({"error": "plain"}, "plain"),
        ({"error": {"type": "t", "code": "c", "message": "m"}}, "t: c: m"),
        ({"message": "m"}, "m"),
        ({"error": {"code": "content_filter", "innererror": {"code": "deep"}}}, "content_filter: deep"),
        ({"detail": [{"loc": ["x"]}]}, "[{'loc': ['x']}]"),
        ([], "[]"),
    ],
    ids=str,
)
def test_the_words_of_an_error_are_found_whatever_its_shape(body: object, words: str) -> None:
    """Vendors and compatible servers agree on little."""
    assert words_of(body) == words


def test_what_stands_for_no_key_is_left_in_the_words() -> None:
    """`none` is a word of vendors too; control: a real key is left out of the same words."""
    words = "tool_choice is one of auto, any, none"

    told = str(fault("anthropic:x", Trouble(400, words, None), secret=NO_KEY))
    hidden = str(fault("anthropic:x", Trouble(400, words, None), secret="auto"))

    assert words in told
    assert words not in hidden
