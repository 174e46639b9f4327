"""The OpenAPI 3.1 document, made from the types of the handlers.

`python -m perdure.server.openapi` prints it; a test compares it with the copy in docs/reference.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from inspect import cleandoc
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from perdure.server.problems import MEDIA_TYPE, STATUSES, Problem
from perdure.server.protocols import ag_ui, ai_sdk
from perdure.server.routes import actions, chat, memory, store, streams, threads
from perdure.server.routing import HttpRoute, Paged, Router
from perdure.version import __version__

__all__ = ["ADDRESS", "document", "page", "schema"]

ADDRESS = "/v1/openapi.json"

_TEMPLATE = "#/components/schemas/{name}"
_DECLARING = (actions, chat, memory, store, streams, threads)  # importing them declares their routes
_REFUSALS = {400, 401, 403, 405, 408, 413, 415, 421, *(status for _, status in STATUSES), 412}


@cache
def document() -> bytes:
    """Return the document as JSON."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2)


def schema(routes: Sequence[HttpRoute] | None = None) -> dict[str, Any]:
    """Return the document that describes `routes`; None: all."""
    routes = Router(routes).routes
    kinds = [
        kind for route in routes for kind in (*_structs(route.answer), *_bodies(route), *_queries(route))
    ]
    _, components = msgspec.json.schema_components([Problem, *dict.fromkeys(kinds)], ref_template=_TEMPLATE)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, components)
    for kind in {kind for route in routes for kind in _queries(route)}:
        components.pop(kind.__name__, None)  # a query is written as parameters
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Perdure",
            "version": __version__,
            "description": "Durable, versioned, vendor-free state for AI agents. Bodies are the shapes that --json prints.",
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "responses": {
                "Problem": {
                    "description": "What went wrong",
                    "content": {MEDIA_TYPE: {"schema": {"$ref": _TEMPLATE.format(name="Problem")}}},
                }
            },
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: HttpRoute, components: dict[str, Any]) -> dict[str, Any]:
    said = cleandoc(route.handler.__doc__ or "").split("\n\n", 1)
    found: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": said[0].rstrip("."),
        "parameters": [*_segments(route), *_parameters(route, components), *_headers(route)],
        "responses": _responses(route),
    }
    if len(said) > 1:
        found["description"] = " ".join(said[1].split())
    if route.permission is None:
        found["security"] = []
    else:
        found["x-permission"] = route.permission
    if route.body is not None:
        shape = {} if route.body is Any else {"$ref": _TEMPLATE.format(name=route.body.__name__)}
        is_needed = route.body is Any or _has_required(route.body)
        found["requestBody"] = {"required": is_needed, "content": {"application/json": {"schema": shape}}}
    return found


def _has_required(body: Any) -> bool:
    return any(field.required for field in msgspec.structs.fields(body))


def _responses(route: HttpRoute) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "Done"}
    if route.status != 204:
        answer = {"description": "The answer", "content": {route.media: {"schema": _shape(route)}}}
    found: dict[str, Any] = {str(route.status): answer}
    if route.handler.__name__ in ("run", "resume"):
        found["202"] = {"description": "The run has begun, or is queued", "content": answer["content"]}
        answer["content"] = {**answer["content"], "text/event-stream": {"schema": {"type": "string"}}}
    if route.handler.__name__ == "ai_sdk_resume":
        found["204"] = {"description": "The newest answer is complete, or there is none"}
    if route.status == 201:
        found["200"] = {**answer, "description": "It was there before"}
    return found | {str(status): {"$ref": "#/components/responses/Problem"} for status in sorted(_REFUSALS)}


def _shape(route: HttpRoute) -> dict[str, Any]:
    if route.media != "application/json":
        return {"type": "string"}
    shapes = [{"$ref": _TEMPLATE.format(name=kind.__name__)} for kind in _structs(route.answer)]
    found = shapes[0] if len(shapes) == 1 else {"anyOf": shapes}
    if get_origin(route.answer) is Paged:
        return {"allOf": [found, {"type": "object", "properties": {"next": {"type": "string"}}}]}
    return found


def _segments(route: HttpRoute) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in names
    ]


def _parameters(route: HttpRoute, components: dict[str, Any]) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    shape = components[route.query.__name__]
    required = set(shape.get("required", ()))
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _flat(each)}
        for name, each in shape.get("properties", {}).items()
    ]


def _flat(shape: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter, which cannot be null: it is left out instead."""
    kinds = [each for each in shape.get("anyOf", ()) if each.get("type") != "null"]
    if len(kinds) == 1:
        return kinds[0]
    found = {name: each for name, each in shape.items() if not (name == "default" and each is None)}
    if "enum" in found:
        found["enum"] = [each for each in found["enum"] if each is not None]
    return found


def _headers(route: HttpRoute) -> list[dict[str, Any]]:
    if route.method == "GET" or route.permission is None:
        return []
    return [
        {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": text}
        for name, text in (
            (
                "Idempotency-Key",
                "Names the request: the same key of the same credential again repeats nothing and gives the first answer",
            ),
            ("If-Match", "The ETag of an earlier answer: the change is made on that head, or not at all"),
        )
        if name != "If-Match" or route.takes_if_match
    ]


def _structs(answer: Any) -> list[Any]:
    """Return the structs that an answer may be."""
    if get_origin(answer) is Paged:
        return _structs(get_args(answer)[0])
    if get_origin(answer) in (UnionType, Union):
        return [each for part in get_args(answer) for each in _structs(part)]
    return [answer] if isinstance(answer, type) and issubclass(answer, msgspec.Struct) else []


def _bodies(route: HttpRoute) -> list[Any]:
    return [] if route.body in (None, Any) else [route.body]


def _queries(route: HttpRoute) -> list[Any]:
    return [] if route.query is None else [route.query]


_ABOUT = """# HTTP

`perdure serve` and `perdure.server.app` answer these requests; [call the server with curl](../how-to/call-it-with-curl.md) shows the first ones in use.
This page is made from the handlers: `python -m perdure.server.openapi page > docs/reference/http.md`.
The whole interface, with every shape, is the OpenAPI 3.1 document [openapi.json](openapi.json), which a server has at `/v1/openapi.json`.

Bodies are the shapes that `--json` prints ([command line](cli.md)); a list has a `next` as well if there is more, to be given as `after`.
A GET outside `/v1` with `Accept: application/json` has the answer of the same path below `/v1`: each address of the page gives its data.
`/` gives the threads; parameters that only choose what the page shows of its data (`tab`, `path`, `call`, `focus`) are left out.

| header | means |
|---|---|
| `Authorization: Bearer KEY` | the credential; the page uses a cookie instead |
| `ETag`, `If-Match` | the head of a timeline; with `If-Match` a change is made on that head, or is 412 with both heads; what moves no head refuses it |
| `Idempotency-Key` | names the request among those of its credential: the op_id, the id of the message for `run` and `steer`, and of a thread without an id are derived from both |
| `Last-Event-ID` | the cursor after which a stream begins |

| status | errors |
|---|---|
| 401, 403 | no valid credential; a role, a limit or a policy does not allow it (`Refused`) |
| 404, 410 | `NotFound`, also for what is outside the limits of a credential; `Forgotten` |
| 409, 412, 423 | `Conflict`; `StaleHead` with `If-Match`; `Busy`, with `Retry-After` |
| 413, 415, 421 | a body too large or of another type; another host name |
| 422 | `Invalid`, `Unsupported` |
| 500, 503 | `Corrupt`; `Unavailable`, with `Retry-After` |
| 502 | `RunFailed`: the run has begun and failed; `facts.run` is its result, with `why`. In a stream it is the event `error`, with the same document |

Errors are documents of RFC 9457 with `code`, `facts` and `advice`, as in [errors](errors.md); the advice names requests.
Streams have the events of [streams](streams.md): a durable one has its cursor as `id`, the others have none.
Below `ai-sdk` they are the AI SDK's UI message stream {ui_stream}, below `ag-ui` the events of AG-UI {ag_ui} ([how](../how-to/chat-front-end.md)).

"""


def page() -> str:
    """Return the reference page: every route with its permission, its parameters, its body and its answer."""
    rows = ["| request | permission | query | body | answer |", "|---|---|---|---|---|"]
    for route in Router().routes:
        query = (
            [] if route.query is None else [each.encode_name for each in msgspec.structs.fields(route.query)]
        )
        body = "JSON or bytes" if route.body is Any else route.body.__name__ if route.body else ""
        answer = " or ".join(each.__name__ for each in _structs(route.answer)) or route.media
        named = [f"`{each}`" for each in query]
        rows.append(
            f"| `{route.method} {route.path}` | {route.permission or 'none'} | {' '.join(named)} | {body} | {answer} |"
        )
    about = _ABOUT.format(ui_stream=ai_sdk.PROTOCOL, ag_ui=ag_ui.PROTOCOL)
    return about + "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page() if sys.argv[1:] == ["page"] else document().decode() + "\n")
