"""Streams, sessions and what monitors ask: events of a thread, the inbox, signing in, health and metrics."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from perdure.server.limited_handle import opened
from perdure.server.problems import HttpProblem
from perdure.server.routes.store import SessionShape
from perdure.server.routing import HttpCall, LineQuery, route
from perdure.server.streams import EventStream, frames
from perdure.telemetry.metrics import Metric, MetricPoint, prometheus_text

__all__ = ["Health", "metrics_text"]


class EventsQuery(LineQuery, frozen=True, kw_only=True):
    """Where to begin: after a cursor, unless Last-Event-ID names one; `wait` false ends when no run is live."""

    after: str | None = None
    wait: bool = True


@route("GET", "/v1/threads/{thread}/events", "read", media="text/event-stream")
async def follow(call: HttpCall, query: EventsQuery) -> EventStream:
    """Stream the events of a timeline: durable ones once and in order, and text as it is written."""
    after = call.headers.get("last-event-id") or query.after
    handle = await opened(call, query.timeline)
    happenings = handle.follow(after, wait=query.wait)
    await happenings.begin()  # a text that is no cursor is an answer of its own, not an event
    return call.server.stream(call, frames(happenings, place=call.server.place))


@route("GET", "/v1/events", "read", media="text/event-stream")
async def inbox(call: HttpCall) -> EventStream:
    """Stream which threads have changed and how many approvals wait, over all threads."""
    return call.server.stream(call, call.server.inbox.frames(call.access.sees))


class SignIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key, or the token of the start link."""

    key: str


@route("POST", "/v1/session", None)
async def sign_in(call: HttpCall, body: SignIn) -> SessionShape:
    """Exchange a key for a cookie."""
    access = await call.server.known(body.key, call.headers)
    if access is None:
        raise HttpProblem(
            401,
            "credential_unknown",
            "the server does not know this key; it did not sign the browser in.",
            advice="Copy the whole key as `perdure keys add` printed it; a key that was removed no longer works.",
        )
    call.access, call.cookie = access, body.key
    return await call.server.store.off_loop(lambda: SessionShape.of(call))


@route("DELETE", "/v1/session", None, status=204)
async def sign_out(call: HttpCall) -> None:
    """Remove the cookie."""
    call.cookie = ""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the server can do its work."""

    status: str


@route("GET", "/healthz", None)
async def health(call: HttpCall) -> Health:
    """Say that the process answers."""
    return Health(status="ok")


@route("GET", "/readyz", None)
async def ready(call: HttpCall) -> Health:
    """Say whether the server takes requests: its store answers, and it is not being stopped."""
    if call.server.is_draining:
        raise HttpProblem(503, "draining", "the server is stopping.", headers={"Retry-After": "5"})
    await call.server.store.facts()
    return Health(status="ready")


@route("GET", "/metrics", "read", media="text/plain", whole_store=True)
def metrics(call: HttpCall) -> Response:
    """Return counters and gauges in the text format of Prometheus."""
    text = metrics_text(call)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def metrics_text(call: HttpCall) -> str:
    """Return what the server has counted, and the numbers of the store."""
    server = call.server
    requests = Metric(
        name="perdure.http.requests",
        kind="counter",
        unit="{request}",
        description="Requests that were answered.",
        points=tuple(
            MetricPoint(number, {"method": method, "route": path, "status": str(status)})
            for (method, path, status), number in sorted(server.requests.items())
        ),
    )
    streams = Metric(
        name="perdure.streams.open",
        kind="gauge",
        unit="{stream}",
        description="Streams that clients read now.",
        points=(MetricPoint(server.streams_open),),
    )
    return prometheus_text((requests, streams, *server.metrics.read()))
