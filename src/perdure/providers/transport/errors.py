"""Defines the errors of a request to a backend, one class for each that a caller treats differently.

    Unavailable
    └── BackendUnavailable   not reached, overloaded or silent; a repeat may work
        ├── RateLimited      too many requests; `retry_after` is the wait that the backend named
        └── CutOff           the answer broke off; nothing of it was kept
    Refused
    ├── AccessRefused        the key is missing or wrong, or lacks the right or the credit
    └── ContentRefused       a content policy of the backend refused the request
    Invalid
    └── RequestRejected      the backend does not accept this request
        └── ContextTooLong   the conversation does not fit into the model's context
    NotFound                 no such model there

Vendors report the same failure in many ways; `fault` chooses the class by the status and the vendor's text.
No key or header enters a message: text that looks like a key, the values of variables that hold keys, and the user
and the query of an address are removed from the vendor's words too.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from perdure.errors import Invalid, NotFound, PerdureError, Refused, Unavailable
from perdure.providers.transport.credentials import NO_KEY

__all__ = [
    "BACKEND_ERRORS",
    "AccessRefused",
    "BackendUnavailable",
    "ContentRefused",
    "ContextTooLong",
    "CutOff",
    "RateLimited",
    "RequestRejected",
    "Trouble",
    "fault",
    "key_missing",
    "retry_after",
    "unknown_to_sdk",
    "unreached",
    "words_of",
]

_QUOTED_MAX = 500
_LEFT_OUT = "[left out]"

_KEYS = re.compile(
    r"(?i)\b(?:bearer|basic)\s+[\w.~+/=-]{6,}"
    r"|\b(?:sk|rk|pk|gsk|xai|key|hf|pplx)[-_][\w*.-]{4,}"
    r"|\bAIza[\w-]{10,}|\b(?:AKIA|ASIA)[A-Z0-9]{8,}|\bya29\.[\w.-]+|\beyJ[\w-]{10,}\.[\w.-]+"
    r"|(?<=key[=:])\s*[^\s&,\"']+"
)
_VARIABLES = re.compile(r"KEY|TOKEN|SECRET|CREDENTIAL|PASSWORD|HEADERS", re.IGNORECASE)
_VALUE_MIN = 8  # characters of a variable's value that can be a key
_ADDRESS = re.compile(r"""(?i)(\b[a-z][a-z0-9+.-]*://)(?:[^\s/?#"'<>@]*@)?([^\s?"'<>]*)(\?[^\s"'<>]*)?""")
_TOO_LONG = re.compile(
    r"context[_ ](?:length|window|size)|maximum context|prompt is too long|input is too long|too many (?:input )?tokens"
    r"|exceeds? the (?:maximum|available) (?:number of tokens|context)|exceed_context_size|string_above_max_length"
    r"|too large for model|input token count|reduce the length|request_too_large",
    re.IGNORECASE,
)
_OFFENSIVE = re.compile(
    r"content[_ ](?:filter|policy|management)|ResponsibleAI|moderation[_ ]blocked|invalid_prompt|usage polic|guardrail"
    r"|violat\w+ .{0,40}polic|PROHIBITED_CONTENT",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(r"insufficient_quota|billing|credit balance|payment required", re.IGNORECASE)
_NO_ACCESS = re.compile(
    r"API_KEY_INVALID|API key not valid|UnrecognizedClient|InvalidSignature", re.IGNORECASE
)


class BackendUnavailable(Unavailable):
    """The backend was not reached, is overloaded, or stopped answering."""


class RateLimited(BackendUnavailable):
    """The backend received too many requests; `retry_after` is the wait in seconds that it named."""


class CutOff(BackendUnavailable):
    """The answer broke off.  Nothing of it was kept."""


class AccessRefused(Refused):
    """The key is missing or wrong, or does not allow this request."""


class ContentRefused(Refused):
    """A content policy of the backend refused the request."""


class RequestRejected(Invalid):
    """The backend does not accept this request; a repeat would fail too."""


class ContextTooLong(RequestRejected):
    """The conversation does not fit into the model's context."""


BACKEND_ERRORS: tuple[type[PerdureError], ...] = (
    BackendUnavailable,
    RateLimited,
    CutOff,
    AccessRefused,
    ContentRefused,
    RequestRejected,
    ContextTooLong,
)


class Trouble(NamedTuple):
    """A vendor's report of a failed request."""

    status: int | None  # of HTTP; None if there was none
    said: str  # its code, type and message, in one text
    wait: float | None = None  # seconds that the vendor asks to wait


def fault(
    backend: str, trouble: Trouble, *, secret: object = None, doubled: str | None = None
) -> PerdureError:
    """Return the error for a vendor's report; `secret` is a key that no message may repeat.

    `doubled` is the address of a request whose SDK adds `/v1` to it; None: the SDK adds none, or its own was used.
    """
    status, said, wait = trouble
    quoted = _quoted(said, secret)
    if status in (401, 403) or _NO_ACCESS.search(said):
        return _no_access(backend, status, quoted, secret)
    if status == 402 or _NO_CREDIT.search(said):
        return AccessRefused(
            f"{backend} has no credit for this account{quoted}",
            code="credit_missing",
            backend=backend,
            status=status,
        )
    if status == 429:
        return RateLimited(
            f"{backend} is rate limited; nothing was done{_waiting(wait)}.{quoted}",
            retry_after=wait,
            backend=backend,
        )
    if status is not None and 400 <= status < 500 and status not in (404, 408, 409, 425):
        return _rejected(backend, status, said, quoted)
    if status == 404:
        return NotFound(
            f"{backend} was not found there; nothing was done. Check model and address{_doubling(doubled)}.{quoted}",
            code="model_not_found",
            backend=backend,
            status=status,
        )
    what = f"failed with status {status}" if status is not None else "failed"
    return BackendUnavailable(
        f"{backend} {what}; nothing was kept{_waiting(wait)}. Trying again may work.{quoted}",
        retry_after=wait,
        backend=backend,
        status=status,
    )


def _doubling(address: str | None) -> str:
    is_doubled = address is not None and address.rstrip("/").endswith("/v1")
    return ", which should not end with /v1: the SDK adds that" if is_doubled else ""


def key_missing(backend: str, variable: str) -> AccessRefused:
    """Return the error for a request that needs a key, which `variable` would hold."""
    return AccessRefused(
        f"{backend} needs a key, and there is none.",
        code="api_key_missing",
        advice=f"Set {variable}, or give api_key=.",
        backend=backend,
        variable=variable,
    )


def unreached(
    backend: str, error: BaseException, *, begun: bool, server: str | None = None, secret: object = None
) -> BackendUnavailable:
    """Return the error for a connection that failed; `begun` is True if the answer had begun to arrive.

    `server` is the one that was tried, as it is recorded; None: it is not known.
    """
    why = _quoted(f"{type(error).__name__} {error}".strip(), secret)
    if begun:
        return CutOff(
            f"the answer of {backend} broke off; nothing of it was kept. Ask again.{why}", backend=backend
        )
    at = f" at {server}" if server else ""
    return BackendUnavailable(
        f"{backend} was not reached{at}; nothing was done. Trying again may work.{why}",
        code="backend_unreachable",
        backend=backend,
        server=server,
    )


def unknown_to_sdk(backend: str, error: BaseException, *, secret: object = None) -> Invalid:
    """Return the error for an answer that a vendor's SDK could not read; it names what the SDK stumbled over."""
    why = _without_keys(f"{type(error).__name__}: {error}", secret)
    return Invalid(
        f"{backend} answered in no format that its SDK knows ({why}); nothing of it was kept.",
        code="not_an_answer",
        backend=backend,
        error=why,
    )


def retry_after(headers: Mapping[str, Any]) -> float | None:
    """Return the seconds that an answer's headers ask to wait; None if they name no wait."""
    milliseconds = headers.get("retry-after-ms")
    given = headers.get("retry-after")
    try:
        if milliseconds is not None:
            return max(0.0, float(milliseconds) / 1000)
        return None if given is None else max(0.0, float(given))
    except ValueError:
        return _until(str(given))


def words_of(body: object) -> str:
    """Return code, type and message of an error's body as one text, for every shape that vendors use."""
    if not isinstance(body, Mapping):
        return "" if body is None else str(body)
    outer = cast("Mapping[str, Any]", body)
    inner: Any = outer.get("error", outer)
    if not isinstance(inner, Mapping):
        return str(inner)
    error = cast("Mapping[str, Any]", inner)
    named: list[Any] = [error.get(name) for name in ("status", "type", "code", "message", "detail")]
    words = [str(each) for each in named if each not in (None, "")]
    return ": ".join([*words, words_of(error["innererror"])] if error.get("innererror") else words)


def _rejected(backend: str, status: int, said: str, quoted: str) -> PerdureError:
    if status == 413 or _TOO_LONG.search(said):
        return ContextTooLong(
            f"the conversation is too long for {backend}; nothing was done.{quoted}",
            advice="Shorten it, or use a model with a larger context.",
            backend=backend,
            status=status,
        )
    if _OFFENSIVE.search(said):
        return ContentRefused(
            f"a content policy of {backend} refused the request{quoted}", backend=backend, status=status
        )
    return RequestRejected(
        f"{backend} rejected the request with status {status}; nothing was done.{quoted}",
        backend=backend,
        status=status,
    )


def _no_access(backend: str, status: int | None, quoted: str, secret: object) -> AccessRefused:
    # Vendors repeat parts of a wrong key in their message.
    quotable = quoted if status == 403 else ""
    if secret == NO_KEY:
        return AccessRefused(
            f"{backend} wants a key, and none was sent: a key in a variable goes to its vendor's own address "
            f"alone.{quotable}",
            code="api_key_not_sent",
            advice="Give api_key=, or provider= if that address is a way to the vendor.",
            backend=backend,
            status=status,
        )
    return AccessRefused(
        f"{backend} does not accept the key, or not for this.{quotable}",
        code="api_key_refused",
        advice="Set the key of its SDK, or api_key=.",
        backend=backend,
        status=status,
    )


def _waiting(wait: float | None) -> str:
    return "" if wait is None else f", and it asks to wait {wait:g} seconds"


def _quoted(said: str, secret: object) -> str:
    """Return the vendor's text in one line, without anything that could be a key."""
    text = _without_keys(said, secret)
    return f" It said: {text}" if text else ""


def _without_keys(said: str, secret: object) -> str:
    text = " ".join(said.split())
    if isinstance(secret, str) and secret != NO_KEY and len(secret) >= 4:
        text = text.replace(secret, _LEFT_OUT)
    for name, value in os.environ.items():
        if len(value) >= _VALUE_MIN and _VARIABLES.search(name):
            text = text.replace(value, _LEFT_OUT)
    text = _ADDRESS.sub(lambda found: found[1] + found[2] + (f"?{_LEFT_OUT}" if found[3] else ""), text)
    text = _KEYS.sub(_LEFT_OUT, text)
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _QUOTED_MAX else text[: _QUOTED_MAX - 1] + "…"


def _until(date: str) -> float | None:
    from email.utils import parsedate_to_datetime  # a run that is never told to wait does without it

    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - time.time())
