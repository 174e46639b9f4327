"""What the environment holds for a vendor goes to that vendor, and elsewhere only if the user says so.

Every SDK is asked for real.  A foreign address is a server of ours that writes down what it gets; the
vendors' own addresses are not reached: the request is taken where the SDK hands it to its HTTP client.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from botocore.exceptions import EndpointConnectionError  # pyright: ignore[reportMissingTypeStubs]
from botocore.httpsession import URLLib3Session  # pyright: ignore[reportMissingTypeStubs]

from perdure import Backend
from perdure.errors import Invalid
from perdure.providers.transport.errors import AccessRefused, BackendUnavailable
from tests.coded import raises
from tests.providers.asking import ask
from tests.providers.playing import Asked, playing, whole
from tests.providers.vendors import KEY, VENDORS

HELD = "held-in-the-environment"  # part of every secret there
BY_API = {vendor.api: vendor for vendor in VENDORS}


@dataclass(frozen=True)
class Case:
    """A backend, and what its user has in the environment."""

    backend: str
    variables: Mapping[str, str]
    _: KW_ONLY
    api: str
    provider: str  # what says that an address is a way to the vendor
    own: str = ""  # an address of the vendor's
    address: str = ""  # the variable that its SDK takes an address from
    suffix: str = ""  # of the base address
    is_plain: bool = True  # whether its SDK sends it without encryption


OPENAI = {
    "OPENAI_API_KEY": HELD,
    "OPENAI_ADMIN_KEY": HELD,
    "OPENAI_ORG_ID": HELD,
    "OPENAI_PROJECT_ID": HELD,
    "OPENAI_CUSTOM_HEADERS": f"X-Gateway: {HELD}",
}
AT_OPENAI = "https://api.openai.com/v1"
AT_ANTHROPIC = "https://api.anthropic.com"
AT_GOOGLE = "https://generativelanguage.googleapis.com"
AT_AWS = "https://bedrock-runtime.us-east-1.amazonaws.com"
AT_FOUNDRY = "https://mine.services.ai.azure.com/models"

CASES: dict[str, Case] = {
    "openai chat": Case(
        "openai-chat:m",
        OPENAI,
        api="openai-chat",
        provider="openai",
        own=AT_OPENAI,
        address="OPENAI_BASE_URL",
        suffix="/v1",
    ),
    "openai responses": Case(
        "openai:m",
        OPENAI,
        api="openai-responses",
        provider="openai",
        own=AT_OPENAI,
        address="OPENAI_BASE_URL",
        suffix="/v1",
    ),
    "azure openai": Case(
        "azure-openai:m",
        {"AZURE_OPENAI_API_KEY": HELD},
        api="openai-chat",
        provider="azure-openai",
        own="https://mine.openai.azure.com/openai/v1",
        suffix="/v1",
    ),
    "anthropic key": Case(
        "anthropic:claude-m",
        {"ANTHROPIC_API_KEY": HELD},
        api="anthropic-messages",
        provider="anthropic",
        own=AT_ANTHROPIC,
        address="ANTHROPIC_BASE_URL",
    ),
    "anthropic token": Case(
        "anthropic:claude-m",
        {"ANTHROPIC_AUTH_TOKEN": HELD},
        api="anthropic-messages",
        provider="anthropic",
        own=AT_ANTHROPIC,
        address="ANTHROPIC_BASE_URL",
    ),
    "anthropic headers": Case(
        "anthropic:claude-m",
        {"ANTHROPIC_CUSTOM_HEADERS": f"Authorization: Bearer {HELD}\nX-Gateway: {HELD}"},
        api="anthropic-messages",
        provider="anthropic",
        own=AT_ANTHROPIC,
        address="ANTHROPIC_BASE_URL",
    ),
    "gemini key": Case(
        "google:gemini-m",
        {"GEMINI_API_KEY": HELD},
        api="gemini-generate",
        provider="google",
        own=AT_GOOGLE,
        address="GOOGLE_GEMINI_BASE_URL",
    ),
    "google key": Case(
        "google:gemini-m",
        {"GOOGLE_API_KEY": HELD},
        api="gemini-generate",
        provider="google",
        own=AT_GOOGLE,
        address="GOOGLE_GEMINI_BASE_URL",
    ),
    "vertex key": Case(
        "vertex:gemini-m",
        {"GOOGLE_API_KEY": HELD},
        api="gemini-generate",
        provider="google-vertex",
        own="https://aiplatform.googleapis.com",
        address="GOOGLE_VERTEX_BASE_URL",
    ),
    "mistral": Case(
        "mistral:m",
        {"MISTRAL_API_KEY": HELD},
        api="mistral-chat",
        provider="mistral",
        own="https://api.mistral.ai",
    ),
    "bedrock keys": Case(
        "bedrock:us.m-v1:0",
        {"AWS_ACCESS_KEY_ID": HELD, "AWS_SESSION_TOKEN": HELD},
        api="bedrock-converse",
        provider="bedrock",
        own=AT_AWS,
        address="AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
    ),
    "bedrock token": Case(
        "bedrock:us.m-v1:0",
        {"AWS_BEARER_TOKEN_BEDROCK": HELD},
        api="bedrock-converse",
        provider="bedrock",
        own=AT_AWS,
        is_plain=False,
    ),
    "foundry": Case(
        "foundry:m",
        {"AZURE_INFERENCE_CREDENTIAL": HELD},
        api="azure-inference-chat",
        provider="azure",
        own=AT_FOUNDRY,
        address="AZURE_INFERENCE_ENDPOINT",
        suffix="/models",
    ),
    "ollama native": Case(
        "ollama-chat:m",
        {"OLLAMA_API_KEY": HELD},
        api="ollama-chat",
        provider="ollama",
        own="https://ollama.com",
        address="OLLAMA_HOST",
    ),
    "interactions key": Case(
        "gemini-interactions:gemini-m",
        {"GEMINI_API_KEY": HELD},
        api="gemini-interactions",
        provider="google",
        own=AT_GOOGLE,
        address="GOOGLE_GEMINI_BASE_URL",
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    """Each case, in its environment."""
    case = CASES[request.param]
    for name, value in case.variables.items():
        monkeypatch.setenv(name, value)
    return case


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What SDKs hand to their HTTP clients, which send nothing."""
    requests: list[str] = []

    async def refuse(_: object, request: httpx2.Request) -> httpx2.Response:
        requests.append(f"{request.url} {dict(request.headers)}")
        raise httpx2.ConnectError("there is no network here", request=request)

    def cut(_: object, request: Any) -> None:
        requests.append(f"{request.url} {dict(request.headers)}")
        raise EndpointConnectionError(endpoint_url=request.url)

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", refuse)
    monkeypatch.setattr(URLLib3Session, "send", cut)
    return requests


def received(case: Case, **more: Any) -> list[Asked]:
    """What a server of ours gets when the backend is asked there."""
    with playing(BY_API[case.api].streamed()) as place:
        ask(Backend(case.backend, base_url=place.url + case.suffix, **more))
        return place.requests


def told(requests: list[Asked]) -> str:
    """All that a server was told, in one text."""
    return json.dumps([[each.path, dict(each.headers), each.body] for each in requests])


def test_what_the_environment_holds_is_not_sent_to_a_foreign_address(case: Case) -> None:
    """The server is asked once, and learns no secret."""
    requests = received(case)

    assert len(requests) == 1
    assert HELD not in told(requests)


def test_what_the_environment_holds_is_sent_where_the_user_says_whose_server_it_is(
    case: Case, request: pytest.FixtureRequest
) -> None:
    """The same request, with the vendor's name: what is held is there to be sent."""
    if case.is_plain:
        assert HELD in told(received(case, provider=case.provider))
        return

    handed: list[str] = request.getfixturevalue("handed")
    with suppress(BackendUnavailable):
        ask(Backend(case.backend, base_url="https://gateway.example", provider=case.provider, retries=0))
    assert HELD in handed[0]


def test_a_key_that_is_named_for_a_backend_is_sent_alone(case: Case) -> None:
    """To a foreign address goes that key, and nothing beside it."""
    if case.api == "bedrock-converse":
        with raises(Invalid, "api_key_not_taken"):
            received(case, api_key=KEY)
        return

    requests = received(case, api_key=KEY)

    assert KEY in told(requests)
    assert HELD not in told(requests)


def test_what_the_environment_holds_is_sent_to_the_vendor(case: Case, handed: list[str]) -> None:
    """At the vendor's own address it is in the request."""
    with suppress(BackendUnavailable):
        ask(Backend(case.backend, base_url=case.own, retries=0))

    assert len(handed) == 1
    assert case.own in handed[0]
    assert HELD in handed[0]


@pytest.mark.parametrize("disguise", ["{host}.example", "evil{domain}", "{host}@evil.example"])
def test_an_address_that_looks_like_the_vendors_is_foreign(
    case: Case, handed: list[str], disguise: str
) -> None:
    """Hosts are compared by whole labels, after whatever stands before them."""
    host = case.own.removeprefix("https://").partition("/")[0]
    address = disguise.format(host=host, domain=".".join(host.split(".")[-2:]))

    with suppress(BackendUnavailable):
        ask(Backend(case.backend, base_url=f"https://{address}/v1", retries=0))

    assert "evil" in handed[0] or ".example" in handed[0]
    assert HELD not in handed[0]


def test_the_vendors_name_without_encryption_gets_no_key(case: Case, handed: list[str]) -> None:
    """Any machine on the way could read it."""
    with suppress(BackendUnavailable):
        ask(Backend(case.backend, base_url=case.own.replace("https:", "http:"), retries=0))

    assert HELD not in handed[0]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.address])
def test_an_address_in_the_sdks_own_variable_gets_what_stands_beside_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who sets both has said where the key goes."""
    case = CASES[name]
    for variable, value in case.variables.items():
        monkeypatch.setenv(variable, value)

    with playing(BY_API[case.api].streamed()) as place:
        monkeypatch.setenv(case.address, place.url + case.suffix)
        ask(Backend(case.backend))

    assert HELD in told(place.requests)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.address])
def test_an_address_in_a_variable_does_not_make_another_address_the_vendors(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backend's own address is foreign all the same."""
    case = CASES[name]
    for variable, value in case.variables.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv(case.address, "https://gateway.example")

    assert HELD not in told(received(case))


def test_a_token_file_of_mistrals_stays_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token of a service account is read only for Mistral."""
    token = tmp_path / "token"
    token.write_text(HELD)
    monkeypatch.setenv("MISTRAL_SA_TOKEN_PATH", str(token))
    case = CASES["mistral"]

    assert HELD not in told(received(case))
    assert HELD in told(received(case, provider="mistral"))


def test_an_identity_of_anthropics_is_not_exchanged_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK would send it to the address to get a token for it."""
    monkeypatch.setenv("ANTHROPIC_FEDERATION_RULE_ID", "rule")
    monkeypatch.setenv("ANTHROPIC_ORGANIZATION_ID", "organization")
    monkeypatch.setenv("ANTHROPIC_IDENTITY_TOKEN", HELD)
    case = CASES["anthropic key"]

    assert [request.path for request in received(case)] == ["/v1/messages"]
    with playing(whole({"error": {"message": "no"}}, status=400)) as place, suppress(Exception):
        ask(Backend(case.backend, base_url=place.url, provider="anthropic", retries=0))
    assert HELD in told(place.requests)


def test_a_key_is_kept_where_a_variable_turns_the_sdk_to_vertex(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK then goes another way, and would send the same key."""
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    monkeypatch.setenv("GOOGLE_API_KEY", HELD)
    case = CASES["google key"]

    assert HELD not in told(received(case))
    assert HELD in told(received(case, provider="google"))


@pytest.mark.parametrize("name", ["groq:m", "vllm:m", "foundry:m"])
def test_what_is_openais_is_not_sent_by_its_sdk_to_others(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Organization, project and headers of OpenAI's are sent to no other vendor, with any key."""
    for variable, value in OPENAI.items():
        monkeypatch.setenv(variable, value)
    vendor = BY_API["azure-inference-chat" if name == "foundry:m" else "openai-chat"]

    with playing(vendor.streamed()) as place:
        ask(Backend(name, base_url=place.url + vendor.suffix, api_key=KEY))

    assert KEY in told(place.requests)
    assert HELD not in told(place.requests)


@pytest.mark.parametrize(
    "address",
    [
        "https://bedrock-runtime.s3.amazonaws.com",
        "https://bedrock-runtime.us-east-1.elb.amazonaws.com",
        "https://mine.execute-api.us-east-1.amazonaws.com",
        "https://x.bedrock-runtime.us-east-1.amazonaws.com",
    ],
)
def test_a_customers_machine_at_aws_is_foreign(
    address: str, handed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Buckets, balancers and gateways are under the same domain, and belong to any customer."""
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", HELD)

    with suppress(BackendUnavailable):
        ask(Backend("bedrock:us.m-v1:0", base_url=address, retries=0))

    assert address in handed[0]
    assert HELD not in handed[0]


@pytest.mark.parametrize(
    "address",
    [
        "https://bedrock-runtime-fips.us-gov-west-1.amazonaws.com",
        "https://vpce-0a.bedrock-runtime.eu-central-1.vpce.amazonaws.com",
        "https://bedrock-runtime.cn-north-1.amazonaws.com.cn",
        "https://bedrock-runtime.us-east-1.api.aws",
    ],
)
def test_all_addresses_of_bedrock_are_its_own(
    address: str, handed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of other clouds, of both stacks and of private networks too."""
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", HELD)

    with suppress(BackendUnavailable):
        ask(Backend("bedrock:us.m-v1:0", base_url=address, retries=0))

    assert HELD in handed[0]


def test_a_refusal_at_a_foreign_address_says_that_no_key_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """And how to send one, since there is one."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", HELD)

    with (
        playing(whole({"error": {"message": "who are you?"}}, status=401)) as place,
        raises(AccessRefused, "api_key_not_sent", status=401),
    ):
        ask(Backend("anthropic:claude-m", base_url=place.url))


def test_every_vendor_is_tried() -> None:
    """No transport is left out."""
    assert {case.api for case in CASES.values()} == set(BY_API)
