"""Defines a backend: a model that takes steps, and an adapter that translates to and from its wire format.

A run calls a *model*: a context goes in, a stream of events comes out.  The last event is `Finished`, with
the whole message.  The events before it are for observers and are not stored.

An *adapter* is pure: no network, no clock, no storage.  It knows one vendor's JSON and nothing else, in both
directions.  It drops nothing silently: the report has a `Loss` for each thing that it could not carry over
unchanged.

`STOP_WORDS` maps a backend's own word for the end of an answer to its meaning.  The words of the formats do not
contradict each other, so one table serves them all, and also servers that speak a format with words of their own.
Where a word is ambiguous (a refusal that ends with `stop`), the adapter sets `stop_kind`.  A word that is not in the
table counts as `unknown`: the answer is kept, but it is not known to be complete.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from perdure.errors import Corrupt
from perdure.model import canonical
from perdure.model.canonical import prepare, prepared
from perdure.model.context import Context
from perdure.model.message import Message
from perdure.model.recipe import Sent
from perdure.model.run import StopKind, StopReason, Usage
from perdure.providers.capabilities import Level

__all__ = [
    "Adapter",
    "Asked",
    "CallDelta",
    "Finished",
    "Loss",
    "LossKind",
    "Model",
    "ModelEvent",
    "PendingReply",
    "ReasoningChunk",
    "Rendered",
    "Reply",
    "STOP_WORDS",
    "StreamParser",
    "TextChunk",
    "decode_losses",
    "encode_losses",
    "losses_of",
    "sent_by",
    "server_of",
    "stop_reason",
]

LossKind: TypeAlias = Literal["converted", "repaired", "dropped"]

_WORDS: dict[StopKind, str] = {
    "completed": "end_turn stop stop_sequence completed complete end eos eos_token stop_token",
    "tool_calls": "tool_use tool_calls tool_call function_call requires_action unexpected_tool_call",
    "paused": "pause_turn compaction requires_continuation",
    "pending": "queued in_progress",
    "truncated": (
        "max_tokens max_output_tokens length max_length model_length incomplete token_limit error_limit "
        "model_context_window_exceeded context_length_exceeded budget_exceeded"
    ),
    "refused": (
        "refusal content_filter content_filtered safety recitation language blocklist prohibited_content spii "
        "image_safety image_prohibited_content image_recitation model_armor jailbreak guardrail_intervened "
        "sensitive error_toxic"
    ),
    "malformed": (
        "malformed_function_call malformed_tool_use malformed_model_output malformed_response "
        "too_many_tool_calls missing_thought_signature no_image"
    ),
    "failed": "error failed network_error insufficient_system_resource abort aborted timeout",
    "cancelled": "cancelled canceled",
}
STOP_WORDS: dict[str, StopKind] = {word: kind for kind, words in _WORDS.items() for word in words.split()}


class TextChunk(msgspec.Struct, frozen=True):
    """The next piece of the answer's text."""

    text: str


class ReasoningChunk(msgspec.Struct, frozen=True):
    """The next piece of the model's summary of its reasoning."""

    text: str


class CallDelta(msgspec.Struct, frozen=True):
    """The next piece of a tool call."""

    index: int  # which of the step's calls
    name: str
    arguments: str  # the next piece


class PendingReply(msgspec.Struct, frozen=True):
    """The backend is working on the answer; any process can fetch it later by this id."""

    id: str


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a render could not carry over unchanged."""

    kind: LossKind  # expressed in another form; changed so that the target accepts it; left out
    where: str  # in the context: `messages[3].content[1]`, `tools[0].parameters`, `options.seed`
    what: str  # what it is: `image`, `reasoning`, `tool call id`, …
    why: str  # in words


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The step is complete; `message` is the answer, with the vendor's own ids for its calls."""

    message: Message
    usage: Usage = Usage()
    stop: str | None = None  # why the answer ended, in the vendor's word
    stop_kind: StopKind | None = None  # its meaning, where the word alone is ambiguous
    losses: tuple[Loss, ...] = ()  # of the request that was sent and of the answer


ModelEvent: TypeAlias = TextChunk | ReasoningChunk | CallDelta | PendingReply | Finished


class Model(Protocol):
    """Takes the steps of a run.

    A model that sends conversations to a server should also have a property `server`, a name or an address
    that is recorded with each thread; see `server_of`.
    """

    @property
    def backend(self) -> str:
        """Return its name, `provider:model`."""
        ...

    def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Answer `context`.  The last event is `Finished`; a step that fails raises and has changed nothing.

        A step that ends after `PendingReply` without `Finished` is taken again with `context.pending`.
        """
        ...


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """A request in a vendor's format, and what could not be carried over unchanged."""

    body: dict[str, Any]
    losses: tuple[Loss, ...] = ()
    names: Mapping[
        str, str
    ] = {}  # for tools that were renamed: the canonical name by the name in the request


class Asked(Context, frozen=True, kw_only=True):
    """The context that a request holds, and a report of what the context lacks of the request."""

    losses: tuple[Loss, ...] = ()


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A vendor's answer in canonical form."""

    message: (
        Message  # with the vendor's own call ids, made unique; what only it can read is in vendor_metadata
    )
    stop: str | None = None  # why the answer ended, in the vendor's word
    stop_kind: StopKind | None = None  # its meaning, where the word alone is ambiguous
    pending: str | None = None  # the id by which the answer is fetched later; None: this is the answer
    usage: Usage = Usage()
    events: tuple[ModelEvent, ...] = ()  # the same answer as events; the last is `Finished`
    losses: tuple[Loss, ...] = ()  # what the canonical form cannot say; it stays in vendor_metadata
    others: tuple[Message, ...] = ()  # further choices, where several were asked for


class StreamParser(Protocol):
    """Parses a streamed answer from pieces of any size."""

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Return the events that these next bytes complete."""
        ...

    def close(self) -> Reply:
        """Return the whole answer, at the end of the stream.  Raises `Invalid` if nothing of it was complete."""
        ...


class Adapter(Protocol):
    """Translates between contexts and one vendor's wire format."""

    @property
    def api(self) -> str:
        """Return its name, such as `openai-chat`."""
        ...

    def render(self, context: Context, *, model: str, provider: str | None = None) -> Rendered:
        """Return a request that the vendor accepts, for any history; `provider` names the server's provider."""
        ...

    def read_request(
        self, body: Mapping[str, Any], *, model: str | None = None, provider: str | None = None
    ) -> Context:
        """Return the context that a request of this format shows; raises `Invalid` if it is none.

        An adapter that does not take in all of a request gives it as `Asked`, with what is missing.
        """
        ...

    def parse(self, body: Mapping[str, Any], *, provider: str | None = None) -> Reply:
        """Return the answer; raises `Invalid` if it is none of this format."""
        ...

    def stream(self, *, provider: str | None = None) -> StreamParser:
        """Return a parser for a streamed answer."""
        ...

    def parse_stream(self, chunks: Iterable[bytes], *, provider: str | None = None) -> Reply:
        """Return the same as `stream`, fed with all chunks."""
        ...

    def supports(self, capability: str, *, model: str | None = None, provider: str | None = None) -> Level:
        """Return the level of a capability (see `capabilities`) for the format, or for that model on that server."""
        ...


def server_of(model: Model) -> str | None:
    """Return the server that a model's next step would go to; None: it names none."""
    return getattr(model, "server", None)


def sent_by(model: object) -> Sent | None:
    """Return the model's `sent`, which says how its requests are made; None: it takes contexts unchanged."""
    found: object = getattr(model, "sent", None)
    return found if isinstance(found, Sent) else None


def stop_reason(word: str | None, kind: StopKind | None = None, *, has_calls: bool) -> StopReason:
    """Return the meaning of an answer's end; `kind` is what its adapter knows beyond the word.

    An answer without a word is complete, or its transport would have raised.
    An end for tool calls without any call counts as malformed: there is nothing to run.
    """
    if kind is None:
        kind = STOP_WORDS.get(word.casefold().replace("-", "_"), "unknown") if word else "completed"
    if kind == "tool_calls" and not has_calls:
        kind = "malformed"
    elif has_calls and kind in ("completed", "paused"):
        kind = "tool_calls"
    return StopReason(kind, word or None)


def losses_of(*reports: Sequence[Loss]) -> tuple[Loss, ...]:
    """Return several reports as one, each entry once, in order."""
    return tuple(dict.fromkeys(loss for report in reports for loss in report))


def encode_losses(losses: Sequence[Loss]) -> bytes:
    """Return the stored form of a report."""
    return canonical.encode(msgspec.to_builtins(list(losses)))


def decode_losses(body: bytes) -> tuple[Loss, ...]:
    """Return the report from its stored form; raises `Corrupt` if the bytes hold none."""
    try:
        return msgspec.json.decode(body, type=prepared(tuple[Loss, ...]))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(
            f"a stored report of losses cannot be read: {error}.",
            advice="Run `perdure verify`.",
            code="losses_unreadable",
        ) from error


prepare(Loss)
