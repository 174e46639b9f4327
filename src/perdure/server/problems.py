"""Problem documents (RFC 9457): every error of the error tree as an HTTP status and a JSON body.

The status follows from the class of the error, the body has its code, its facts, and advice in the words of a client.
A fact that JSON cannot hold is left out.  An error that is no `PerdureError` is a defect: it is logged, and its text is
not sent.  The same is done with an error that names the place of the store: a path with the name of a person, or the host and the
user of a database, are nothing for clients, least of all for those without a credential.  Nor are they told another
store that an error is about, the addresses of backends, the ids of threads that they did not name, or whose a thread is:
it may be another person's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from math import ceil
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure import errors
from perdure.errors import PerdureError, RunFailed
from perdure.providers.transport.errors import BACKEND_ERRORS
from perdure.runtime.session.result import Result
from perdure.shapes.text import named
from perdure.shapes.threads import ReportShape
from perdure.switching.report import Report

__all__ = [
    "FOR_APPLICATIONS",
    "FOR_HTTP",
    "FOR_MCP",
    "MEDIA_TYPE",
    "STATUSES",
    "HttpProblem",
    "Problem",
    "advice_for",
    "last_part",
    "problem",
    "problem_handler",
    "problem_of",
    "problem_response",
]

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

# What only the program can have done wrong: no request of a client can lead to it, or mend it.
_OF_THE_PROGRAM = frozenset({"blocks_event_loop", "change_not_open", "not_awaited"})
_FAILED = "the store of the server cannot be used now; each write of the request is whole or absent."
_OF_A_BACKEND = frozenset(each.__name__ for each in BACKEND_ERRORS)
_MOVED = "the conversation would go to another server than before; nothing was sent there."
_LOGGED = "The log of the server has the cause."

# The library advises programs that hold a store, and names the method that helps.  A client has no such method: it is
# told the request, or the tool, that does the same.  An error of any other code shows its own advice, which names none.
_THREAD = "/v1/threads/{thread}"
_RESOLVE = f"POST {_THREAD}/calls/{{call}}/resolve"

FOR_HTTP: Mapping[str, str] = {
    "address_missing": "Start the server with code whose Backend has its address.",
    "address_variable_missing": "Start the server with the address in its environment.",
    "agent_not_found": "GET /v1/agents lists the agents; a worker's new agent begins its first thread there.",
    "api_key_missing": "Start the server with the key in its environment.",
    "api_key_not_sent": "Name the key, or whose server it is, where the code of the server declares the backend.",
    "api_key_not_taken": "Leave the key out of the code of the server.",
    "api_key_refused": "Start the server with the right key in its environment.",
    "backend_differs": f"A thread that has begun is moved by POST {_THREAD}/switch, after a check.",
    "backend_missing": "Give the agent a backend in the code of the server.",
    "backend_not_given": (
        f"Start the server with code that has it, or move the thread to another with POST {_THREAD}/switch; a run that "
        f"was cut off has to be ended first, with POST {_THREAD}/cancel."
    ),
    "backend_without_requests": f"GET {_THREAD}/context has what the model is shown.",
    "busy": f"Wait for it, or end it with POST {_THREAD}/cancel.",
    "call_not_found": f"GET {_THREAD}/calls lists the calls.",
    "call_open": (
        f"Decide it with POST {_THREAD}/decide, go on with POST {_THREAD}/resume, or state its outcome with {_RESOLVE}."
    ),
    "call_started": f"Go on with POST {_THREAD}/resume, or end its run with POST {_THREAD}/cancel, first.",
    "call_waits_for_child": "Decide what the child waits for: GET /v1/approvals lists it.",
    "child_gone": f"Find out what it did, and state the outcome of the call with {_RESOLVE}.",
    "cursor_invalid": "Send the `id` of an earlier event, or the `next` of an earlier page.",
    "erasure_not_undone": "Send the number in `changes` of the facts as `changes`, to also take back the change before it.",
    "failed_run_call_unclear": (
        f"Settle it with POST {_THREAD}/calls/{{call}}/reconcile or {_RESOLVE}, then send the input again."
    ),
    "failed_run_followed": (
        f"Look at its calls first, which GET {_THREAD}/calls lists: what they did stays done. Then send the input with "
        f"another Idempotency-Key, or take those turns back with POST {_THREAD}/undo."
    ),
    "failed_run_undone": (
        f"Look at its calls first, which GET {_THREAD}/calls lists: what they did stays done. Then take an undo back "
        f"with POST {_THREAD}/redo, or send the input with another Idempotency-Key."
    ),
    "failure_not_recorded": f"POST {_THREAD}/resume goes on with it, POST {_THREAD}/cancel ends it.",
    "file_read_only": "The server may only read that file: its rights have to be changed.",
    "head_of_another_timeline": "Send the ETag of an answer about the timeline that the request is for.",
    "held": f"If nothing runs there any more, release it with POST {_THREAD}/release.",
    "in_doubt": "Send it again with the same Idempotency-Key; it will not be applied twice.",
    "inputs_not_begun": f"Let a worker run them, or end them with POST {_THREAD}/cancel.",
    "item_expired": "Send another end as `expires`, such as 30d.",
    "memory_item_expired": (
        "A restore of the item with another end (`expires`) brings it back; the list with `expired` has what expired."
    ),
    "memory_item_not_found": "GET /v1/memory/{owner} lists the items.",
    "memory_missing": "Begin threads with an `owner`: POST /v1/threads.",
    "merge_conflict": (
        'Choose a side with `prefer`: "ours", "theirs", or an object with a side for each path; or make the values equal.'
    ),
    "model_not_found": "If it is new, add it to the file of models of the server.",
    "not_a_backend": "Give a name such as 'anthropic:…', with a provider and a model; GET /v1/backends lists known ones.",
    "not_an_ancestor": f"Name a commit that GET {_THREAD}/log lists there.",
    "nothing_to_redo": (
        f"Any commit can still be reached: POST {_THREAD}/undo with `to`, or POST {_THREAD}/fork with `at`."
    ),
    "nothing_to_restore": (
        "GET /v1/memory/{owner}/log with `item` lists its changes; send the commit of one that wrote it as `at`."
    ),
    "op_reused": "Use a new Idempotency-Key for a new intent.",
    "open_run_missing": (
        f"Name the run: POST {_THREAD}/resume with `run` answers again with the result of one that has ended. "
        f"GET {_THREAD}/runs lists them."
    ),
    "opened_read_only": "The server has opened this store to read only: it has to be started anew to write.",
    "parent_run_undone": (
        f"Take the undo back with POST {_THREAD}/redo on that thread, or end the child with POST {_THREAD}/cancel."
    ),
    "path_not_found": f"GET {_THREAD}/state lists the paths.",
    "price_unknown": "Put the price into the file of models of the server.",
    "range_not_found": f"GET {_THREAD}/turns lists the turns of a timeline.",
    "reconcile_hook_missing": f"State the outcome with {_RESOLVE}.",
    "recorded_step_missing": f"GET {_THREAD}/context without `at` has what the next step would be shown.",
    "request_not_signed": "Say whose server it is where the code of the server declares the backend.",
    "run_interrupted": f"POST {_THREAD}/resume finishes it, POST {_THREAD}/cancel ends it.",
    "run_not_found": f"GET {_THREAD}/runs lists the runs.",
    "run_queued_behind": f"GET {_THREAD}/runs shows when it has ended, POST {_THREAD}/resume begins it now.",
    "run_to_steer_missing": f"Send the words with POST {_THREAD}/run, under the same Idempotency-Key.",
    "run_undone": f"Take the undo back with POST {_THREAD}/redo, or end it with POST {_THREAD}/cancel.",
    "runs_waiting": f"Finish them with POST {_THREAD}/resume, or end them with POST {_THREAD}/cancel.",
    "server_changed": (
        "Start the server with code whose Backend leads to the same server; to move the thread on purpose: `perdure "
        "threads switch --base-url`."
    ),
    "server_not_named": "Say which server you mean where the store is: `perdure threads switch --base-url`.",
    "thread_not_found": "Begin it with POST /v1/threads, or list the threads with GET /v1/threads.",
    "thread_of_another_agent": "Choose another id, or go on as the agent that it has.",
    "thread_removed": "Begin it again with POST /v1/threads.",
    "ticket_not_found": "GET /v1/approvals lists what waits.",
    "timeline_not_found": f"GET {_THREAD}/timelines lists the timelines.",
    "tool_not_declared": "Start the server with the code that declares it: `perdure serve --code MODULE:NAME`.",
    "transport_not_found": "Start the server with code whose agent has a backend that takes steps itself.",
    "turns_invalid": "For a moment send `to`.",
    "value_missing": "Send it as `value`.",
    "value_not_taken": "Leave `value` out.",
}

_MADE_BEFORE = "Look at the calls of that run first: what they did stays done. Then send with another id what is still to be done."

# The clients of one's own application: it has requests of its own, which are not known here.
FOR_APPLICATIONS: Mapping[str, str] = dict.fromkeys((*FOR_HTTP, *_OF_THE_PROGRAM), "") | {
    "busy": "Wait for the run that is at work, then send it again.",
    "cursor_invalid": "Send the `id` of an earlier event.",
    "failed_run_call_unclear": "A person has to settle that call; then send it again with the same id.",
    "failed_run_followed": _MADE_BEFORE,
    "failed_run_undone": _MADE_BEFORE,
    "in_doubt": "Send it again with the same id; it will not be applied twice.",
    "op_reused": "Send a new intent with a new id.",
    "open_run_missing": "It may have ended since: ask for the messages of the thread.",
    "run_failed": "Send the message of the run again, with the same id, to go on with it.",
}

FOR_MCP: Mapping[str, str] = dict.fromkeys(FOR_HTTP, "") | {
    "call_not_found": "The tool `approvals` lists the calls that wait.",
    "call_waits_for_child": "Decide what the child waits for: the tool `approvals` lists it.",
    "held": "If nothing runs there any more, release it with `perdure runs release` where the store is.",
    "in_doubt": "Call the tool again with the same key; it will not be applied twice.",
    "memory_item_expired": "A person brings it back where the store is: `perdure memory restore`.",
    "memory_item_not_found": "The tool `memory_search` without `q` lists the items.",
    "op_reused": "Use a new key for a new intent.",
    "path_not_found": "The tool `state` without a path lists the paths.",
    "thread_not_found": "The tool `threads` lists the threads.",
    "ticket_not_found": "The tool `approvals` lists what waits.",
    "timeline_not_found": "Leave it out for `main`.",
}

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
    error: BaseException,
    *,
    place: str,
    had_precondition: bool = False,
    advice: Mapping[str, str] = FOR_HTTP,
) -> tuple[Problem, dict[str, str]]:
    """Return the document for an error, and the headers that belong to it.

    `place` is where the store is, which no client is told; "" if that is not known: then it is what the error names.
    `had_precondition`: the request had an If-Match, so that a stale head is 412.
    `advice` is what such a client can do, by the code of the error.
    """
    if isinstance(error, HttpProblem):
        return _document(error, error.status, {}, error.advice), error.headers
    if not isinstance(error, PerdureError):
        _log.error("the server failed to answer a request", exc_info=error)
        hidden = PerdureError(
            "the server failed to answer; each of its writes is whole or absent.",
            code="server_failed",
            advice=_LOGGED,
        )
        return _document(hidden, 500, {}, hidden.advice), {}
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
    if had_precondition and isinstance(error, errors.StaleHead):
        status = 412
    if error.code in _OF_THE_PROGRAM:
        status = 500
        _log.error("the program failed to answer a request: %s %s", error.message, error.advice)
    place = place or _store_named_by(error)
    headers: dict[str, str] = {}
    if status in (423, 503):
        after = error.facts.get("retry_after")
        headers["Retry-After"] = str(max(1, ceil(after))) if isinstance(after, int | float) else "1"
    told = _for_clients(error, to_end_users=advice is FOR_APPLICATIONS)
    document = _document(told, status, _facts(told), advice_for(told, advice))
    if place and any(place in str(part) for part in (document.detail, document.advice, document.facts)):
        _log.warning("the store of the server failed: %s", error)
        return msgspec.structs.replace(document, detail=_FAILED, advice=_LOGGED, facts={}), headers
    return document, headers


def problem_response(
    error: BaseException,
    *,
    place: str,
    had_precondition: bool = False,
    advice: Mapping[str, str] = FOR_HTTP,
) -> Response:
    """Return the answer to a request that led to an error; the other arguments are those of `problem_of`."""
    document, headers = problem_of(error, place=place, had_precondition=had_precondition, advice=advice)
    return Response(msgspec.json.encode(document), document.status, headers, MEDIA_TYPE)


def problem(error: BaseException, **members: Any) -> Response:
    """Return the answer of one's own application to a request that led to an error: a problem document (RFC 9457).

    The status follows from the class of the error.  `members` stand beside those of the document.
    """
    document, headers = problem_of(error, place="", advice=FOR_APPLICATIONS)
    body = msgspec.json.encode({**members, **msgspec.to_builtins(document)})
    return Response(body, document.status, headers, MEDIA_TYPE)


async def problem_handler(request: Request, error: Exception) -> Response:
    """Answer a request with the problem document of its error: an exception handler for Starlette and FastAPI."""
    return problem(error)


def advice_for(error: PerdureError, table: Mapping[str, str]) -> str:
    """Return what to do about an error in the words of a table.  A failed run has the advice of its cause."""
    cause = error.__cause__ if isinstance(error, RunFailed) and not _is_own(error, table) else error
    found = table.get(cause.code, error.advice) if isinstance(cause, PerdureError) else error.advice
    return found or table.get(error.code, "")


def _is_own(error: RunFailed, table: Mapping[str, str]) -> bool:
    """True if the table has advice for what happened to the run itself, such as that its end was not recorded."""
    return error.code in table and error.code != RunFailed.code


def _store_named_by(error: BaseException) -> str:
    """Return the place of the store that an error names, "" if it names none."""
    path = error.facts.get("path") if isinstance(error, errors.Unavailable | errors.Corrupt) else None
    return path if isinstance(path, str) else ""


def _for_clients(error: PerdureError, *, to_end_users: bool) -> PerdureError:
    """Return an error without what its client did not name: other threads, whose they are, stores, addresses of backends.

    End users are not told either what a model's vendor said of its failure: it may name accounts, limits and machines.
    """
    thread = error.facts.get("thread")
    match error:
        case errors.NotFound(code="thread_not_found"):
            return _same(error, f"there is no thread '{thread}'; nothing was done.", thread=thread)
        case errors.Conflict(code="thread_of_another_agent" | "thread_of_another_owner"):
            message = f"thread '{thread}' is another agent's or owner's; nothing was done."
            return _same(error, message, advice="Choose another id.", thread=thread)
        case errors.Held():
            message = (
                f"thread '{thread}' came from another store, where the same run may go on; nothing was done."
            )
            return _same(error, message, thread=thread)
        case errors.WrongStore(agent=agent):
            return _same(
                error,
                f"agent '{agent}' keeps its threads in another store; nothing was written.",
                agent=agent,
            )
        case errors.ServerChanged(backend=backend):
            return _same(error, _MOVED, backend=backend, thread=thread)
        case RunFailed(run=Result(kind="ServerChanged") as result):
            return _failed_as(error, result, _MOVED)
        case RunFailed(run=Result(kind=kind) as result) if to_end_users and kind in _OF_A_BACKEND:
            return _failed_as(error, result, f"the model's backend did not answer ({kind})")
        case _:
            return error


def _failed_as(error: RunFailed, result: Result, why: str) -> RunFailed:
    """Return the error with another reason; its cause has the advice."""
    told = RunFailed(msgspec.structs.replace(result, why=why), code=error.code, advice=error.advice)
    told.__cause__ = error.__cause__
    return told


def _same(error: PerdureError, message: str, *, advice: str = "", **facts: object) -> PerdureError:
    """Return an error of the same class and code with another message and other facts."""
    told = type(error).__new__(type(error))
    PerdureError.__init__(told, message, code=error.code, advice=advice or error.advice, **facts)
    return told


def last_part(url: str) -> str:
    """Return how a client that is no admin may know a store: the name of its file or of its database."""
    return url.partition("?")[0].rpartition("/")[2]


def _document(error: PerdureError, status: int, facts: dict[str, Any], advice: str) -> Problem:
    return Problem(
        type=f"urn:perdure:error:{error.code}",
        title=type(error).__name__,
        status=status,
        detail=error.message,
        code=error.code,
        advice=advice,
        facts=facts,
    )


def _facts(error: PerdureError) -> dict[str, Any]:
    """Return the facts that JSON can hold; the report of a refused switch has the shape that a switch answers with."""
    found: dict[str, Any] = {}
    for name, value in error.facts.items():
        if isinstance(value, Report):
            value = ReportShape.of(value, told=error.message)
        with suppress(TypeError, ValueError):
            found[name] = msgspec.to_builtins(named(value), str_keys=True)
    return found
