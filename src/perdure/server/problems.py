"""Problem documents (RFC 9457): every error of the error tree as an HTTP status and a JSON body.

The status follows from the class of the error, the body has its code, its facts and its advice.  A fact that JSON
cannot hold is left out.  An error that is no `PerdureError` is a defect: it is logged, and its text is not sent.
The same is done with an error that names the place of the store: a path with the name of a person, or the host and the
user of a database, are nothing for clients, least of all for those without a credential.  Of another store that an
error is about they are told the last part of its address.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import ceil
from typing import Any, cast

import msgspec
from starlette.responses import Response

from perdure import errors
from perdure.errors import PerdureError
from perdure.shapes.threads import ReportShape
from perdure.switching.report import Report

__all__ = ["MEDIA_TYPE", "STATUSES", "HttpProblem", "Problem", "last_part", "problem_of", "problem_response"]

MEDIA_TYPE = "application/problem+json"

# The first class that fits decides, so that a subclass comes before its parent.
STATUSES: tuple[tuple[type[PerdureError], int], ...] = (
    (errors.Forgotten, 410),
    (errors.NotFound, 404),
    (errors.StaleHead, 409),  # 412, if the request had an If-Match
    (errors.Busy, 423),
    (errors.Conflict, 409),
    (errors.Invalid, 422),
    (errors.Unsupported, 422),
    (errors.Held, 409),
    (errors.Refused, 403),
    (errors.Unavailable, 503),
    (errors.Corrupt, 500),
    (errors.RunFailed, 502),  # the server did its part; the model or the agent's code did not
)

_FAILED = "the store of the server cannot be used now; each write of the request is whole or absent."
_LOGGED = "The log of the server has the cause."

_log = logging.getLogger("perdure.server")


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong: the kind of error, what happened to what, and what to do now."""

    type: str  # urn:perdure:error:<code>
    title: str  # the name of the error's class
    status: int
    detail: str
    code: str
    advice: str
    facts: dict[str, Any]


class HttpProblem(PerdureError):
    """A request that HTTP itself refuses, before anything of a store is read."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        advice: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Refuse a request with a status and, perhaps, headers that tell the client what to do."""
        self.status, self.headers = status, dict(headers or {})
        super().__init__(message, code=code, advice=advice)


def problem_of(
    error: BaseException, *, place: str, had_precondition: bool = False
) -> tuple[Problem, dict[str, str]]:
    """Return the document for an error, and the headers that belong to it.

    `place` is where the store is, which no client is told; "" if that is no secret, or not known.
    `had_precondition`: the request had an If-Match, so that a stale head is 412.
    """
    if isinstance(error, HttpProblem):
        return _document(error, error.status, {}), error.headers
    if not isinstance(error, PerdureError):
        _log.error("the server failed to answer a request", exc_info=error)
        hidden = PerdureError(
            "the server failed to answer; each of its writes is whole or absent.",
            code="server_failed",
            advice=_LOGGED,
        )
        return _document(hidden, 500, {}), {}
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
    if had_precondition and isinstance(error, errors.StaleHead):
        status = 412
    headers: dict[str, str] = {}
    if status == 503:
        after = error.facts.get("retry_after")
        headers["Retry-After"] = str(max(1, ceil(after))) if isinstance(after, int | float) else "1"
    told = _for_clients(error)
    document = _document(told, status, _facts(told))
    if place and any(place in str(part) for part in (document.detail, document.advice, document.facts)):
        _log.warning("the store of the server failed: %s", error)
        return msgspec.structs.replace(document, detail=_FAILED, advice=_LOGGED, facts={}), headers
    return document, headers


def problem_response(error: BaseException, *, place: str, had_precondition: bool = False) -> Response:
    """Return the answer to a request that led to an error; `place` as for `problem_of`."""
    document, headers = problem_of(error, place=place, had_precondition=had_precondition)
    return Response(msgspec.json.encode(document), document.status, headers, MEDIA_TYPE)


def _for_clients(error: PerdureError) -> PerdureError:
    """Return an error about another store with the last part of its address alone."""
    match error:
        case errors.Held(thread=thread, source=source):
            return errors.Held(thread, last_part(source))
        case errors.WrongStore(agent=agent, expected=expected, actual=actual):
            return errors.WrongStore(agent, last_part(expected), last_part(actual))
        case _:
            return error


def last_part(url: str) -> str:
    """Return how a client that is no admin may know a store: the name of its file or of its database."""
    return url.partition("?")[0].rpartition("/")[2]


def _document(error: PerdureError, status: int, facts: dict[str, Any]) -> Problem:
    return Problem(
        type=f"urn:perdure:error:{error.code}",
        title=type(error).__name__,
        status=status,
        detail=error.message,
        code=error.code,
        advice=error.advice,
        facts=facts,
    )


def _facts(error: PerdureError) -> dict[str, Any]:
    """Return the facts that JSON can hold; the report of a refused switch has the shape that a switch answers with."""
    found: dict[str, Any] = {}
    for name, value in error.facts.items():
        if isinstance(value, Report):
            value = ReportShape.of(value, told=error.message)
        with suppress(TypeError, ValueError):
            found[name] = msgspec.to_builtins(_plain(value), str_keys=True)
    return found


def _plain(value: object) -> object:
    """Return named tuples as objects with names, as facts about paths are."""
    if not isinstance(value, tuple | list):
        return value
    items = cast("Sequence[object]", value)
    names: tuple[str, ...] | None = getattr(items, "_fields", None)
    return [_plain(each) for each in items] if names is None else dict(zip(names, items, strict=True))
