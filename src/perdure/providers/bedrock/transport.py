"""Sends Converse by boto3, which blocks: each answer is read on a thread of its own.

boto3 deals in Python values, so a rendered request has its base64 turned into bytes where the API has
bytes, and the events that boto3 decoded become frames of the wire format again.  A client of aioboto3
is awaited.  What boto3 finds of keys and tokens goes to AWS alone: elsewhere nothing is signed.
"""

from __future__ import annotations

import base64
import json
import os
import re
import struct
from binascii import Error as NotBase64
from binascii import crc32
from collections.abc import AsyncGenerator, Iterator
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, cast

from perdure.errors import Invalid, PerdureError
from perdure.model.fork_safety import ThreadLock
from perdure.providers.transport.address import UNKNOWN, check_address, client_address
from perdure.providers.transport.blocking_clients import drawn
from perdure.providers.transport.client_cache import settings
from perdure.providers.transport.contract import Request
from perdure.providers.transport.credentials import host_of, is_home
from perdure.providers.transport.errors import (
    AccessRefused,
    RequestRejected,
    Trouble,
    fault,
    retry_after,
    unknown_to_sdk,
    unreached,
)
from perdure.providers.transport.registry import missing

__all__ = ["SDK", "address", "frame", "send"]

SDK = (
    "boto3",
    "botocore.config",
    "botocore.exceptions",
    "urllib3.exceptions",
)  # the modules that a request needs

_guard = ThreadLock()
_clients: dict[object, Any] = {}  # boto3's may be used on any thread, but not by two processes

# Bedrock's own addresses, and those of a private network; other names under amazonaws.com are customers' machines.
_OWN = re.compile(
    r"(?:bedrock-runtime(?:-fips)?|[\w.-]+\.bedrock-runtime(?:-fips)?(?=\.[\w-]+\.vpce\.))"
    r"\.[a-z]+(?:-[a-z]+)+-\d+(?:\.vpce)?\.(?:amazonaws\.com(?:\.cn)?|api\.aws)"
)

# The status of errors that come as events, where there is no status any more.
_STATUSES = {
    "throttlingexception": 429,
    "validationexception": 400,
    "serviceunavailableexception": 503,
    "modelnotreadyexception": 429,
    "accessdeniedexception": 403,
}


def address(request: Request) -> str:
    """Return the address of a request, which boto3 finds in the environment and in its files.

    Raises `AccessRefused` if there is no region, `Unsupported` if boto3 is not installed.
    """
    if request.base_url is not None:
        return request.base_url
    try:
        import botocore.exceptions as errors  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise missing(request.backend, "boto3", "bedrock") from error
    try:
        return client_address(_client_of(request)) or UNKNOWN
    except errors.BotoCoreError as error:
        raise AccessRefused(
            f"{request.backend} needs AWS credentials and a region: {error}",
            code="aws_credentials_missing",
            backend=request.backend,
        ) from error


async def send(request: Request) -> AsyncGenerator[bytes]:
    """Send by `converse`, or by `converse_stream`."""
    try:
        import botocore.exceptions as errors  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise missing(request.backend, "boto3", "bedrock") from error
    import urllib3.exceptions
    from botocore.eventstream import ParserError  # pyright: ignore[reportMissingTypeStubs]

    begun = False
    try:
        async for piece in _answer(request):
            begun = True
            yield piece
    except errors.ClientError as error:
        raise _translated(request, error) from error
    except (errors.NoCredentialsError, errors.PartialCredentialsError, errors.NoRegionError) as error:
        raise AccessRefused(
            f"{request.backend} needs AWS credentials and a region: {error}",
            code="aws_credentials_missing",
            backend=request.backend,
        ) from error
    except (errors.ParamValidationError, errors.UnknownParameterError) as error:
        raise RequestRejected(
            f"boto3 does not take the request: {error}; nothing was sent.",
            code="request_rejected",
            backend=request.backend,
        ) from error
    except (errors.BotoCoreError, urllib3.exceptions.HTTPError) as error:
        raise unreached(request.backend, error, begun=begun, server=request.server) from error
    except (
        ParserError,
        AttributeError,
        TypeError,
    ) as error:  # boto3 takes the shape of an answer for granted
        raise unknown_to_sdk(request.backend, error) from error


async def _answer(request: Request) -> AsyncGenerator[bytes]:
    client = request.client
    if client is not None and iscoroutinefunction(client.converse):
        check_address(request, client)
        operation, fields = _operation(client, request)
        answer = await operation(**fields)
        if not request.stream:
            yield _whole(answer, request)
            return
        async for event in answer["stream"]:
            yield _framed(event)
        return
    async for piece in drawn(partial(_blocking, request)):
        yield piece


def _blocking(request: Request) -> Iterator[bytes]:
    client = _client_of(request) if request.client is None else request.client
    check_address(request, client)
    operation, fields = _operation(client, request)
    answer = operation(**fields)
    if not request.stream:
        yield _whole(answer, request)
        return
    try:
        yield from map(_framed, answer["stream"])
    finally:
        answer["stream"].close()


def _client_of(request: Request) -> Any:
    import boto3  # pyright: ignore[reportMissingTypeStubs]
    from botocore import UNSIGNED  # pyright: ignore[reportMissingTypeStubs]
    from botocore.config import Config  # pyright: ignore[reportMissingTypeStubs]

    if request.api_key is not None:
        raise Invalid(
            f"{request.backend} takes its keys from AWS's own configuration; nothing was sent.",
            code="api_key_not_taken",
            advice="Leave api_key= out, or give a client=.",
            backend=request.backend,
        )
    ours = _is_ours(request)
    key = (os.getpid(), request.base_url, ours, request.timeout, settings("AWS_"))
    with _guard:
        if key not in _clients:
            config = Config(
                read_timeout=request.timeout,
                connect_timeout=min(60.0, request.timeout),
                retries={"total_max_attempts": 1},
                signature_version=None if ours else UNSIGNED,
            )
            # A session of its own: the one that boto3 shares goes on with the keys that it found first.
            session = cast("Any", boto3).Session()
            _clients[key] = session.client("bedrock-runtime", endpoint_url=request.base_url, config=config)
        return _clients[key]


def _is_ours(request: Request) -> bool:
    """True if the request goes to AWS, by its address or because the user said so."""
    return is_home(request, "bedrock") or _OWN.fullmatch(host_of(request.base_url or "")) is not None


def _operation(client: Any, request: Request) -> tuple[Any, dict[str, Any]]:
    """Return the method to be called, and what it takes."""
    shape = client.meta.service_model.operation_model("ConverseStream" if request.stream else "Converse")
    fields = _given(request.body, shape.input_shape) | {"modelId": request.model}
    return (client.converse_stream if request.stream else client.converse), fields


def _given(value: Any, shape: Any) -> Any:
    """Return a JSON value as boto3 takes it: bytes where the API has bytes."""
    match shape.type_name:
        case "blob" if isinstance(value, str):
            try:
                return base64.b64decode(value, validate=True)
            except NotBase64:
                return value.encode()
        case "structure" if isinstance(value, dict) and not getattr(shape, "is_document_type", False):
            fields = cast("dict[str, Any]", value)
            members: dict[str, Any] = shape.members
            return {
                name: _given(each, members[name]) if name in members else each
                for name, each in fields.items()
            }
        case "list" if isinstance(value, list):
            return [_given(each, shape.member) for each in cast("list[Any]", value)]
        case "map" if isinstance(value, dict):
            return {name: _given(each, shape.value) for name, each in cast("dict[str, Any]", value).items()}
        case _:
            return cast("Any", value)


def _whole(answer: dict[str, Any], request: Request) -> bytes:
    body = {name: value for name, value in answer.items() if name != "ResponseMetadata"}
    return json.dumps(body | {"modelId": request.model}, default=_encoded).encode()


def _framed(event: dict[str, Any]) -> bytes:
    kind, payload = next(iter(event.items()))
    return frame(kind, json.dumps(payload, default=_encoded).encode())


def frame(kind: str, payload: bytes) -> bytes:
    """Return an event in the wire format."""
    named = ((":event-type", kind), (":content-type", "application/json"), (":message-type", "event"))
    headers = b"".join(_header(name, value) for name, value in named)
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    body = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
    return body + struct.pack(">I", crc32(body))


def _header(name: str, value: str) -> bytes:
    label, text = name.encode(), value.encode()
    return struct.pack(">B", len(label)) + label + struct.pack(">BH", 7, len(text)) + text


def _encoded(value: object) -> object:
    """Return a value that JSON lacks in the API's form."""
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return str(value)


def _translated(request: Request, error: Any) -> PerdureError:
    told: dict[str, Any] = error.response.get("Error", {})
    about: dict[str, Any] = error.response.get("ResponseMetadata", {})
    code = str(told.get("Code", ""))
    status = about.get("HTTPStatusCode") or _STATUSES.get(code.lower())
    if code.lower() == "throttlingexception":
        status = 429
    if status in (401, 403) and request.client is None and not _is_ours(request):
        return AccessRefused(
            f"{request.backend} refused the request, which was not signed: AWS credentials go to AWS alone; nothing was "
            "done.",
            code="request_not_signed",
            advice='Give provider="bedrock" if that address is a way to it, or a client=.',
            backend=request.backend,
        )
    wait = retry_after(about.get("HTTPHeaders", {}))
    return fault(request.backend, Trouble(status, f"{code}: {told.get('Message', '')}", wait))
