"""What a backend is to Perdure: a model that takes steps, and an adapter that speaks its wire format.

A *model* is asked by a run: a context goes in, a stream of events comes out.  The last event is
`Finished`, with the whole message; what came before it is for whoever watches, and is not kept.

An *adapter* is pure: no network, no clock, no storage.  It knows one vendor's JSON and nothing
else, in both directions.  Nothing is dropped in silence: whatever could not be carried over
unchanged is a `Loss` in the report.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from perdure.errors import Corrupt
from perdure.model import canonical
from perdure.model.context import Context
from perdure.model.message import Message
from perdure.model.recipe import Sent
from perdure.model.run import StopKind, Usage
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
    "ReasoningDelta",
    "Rendered",
    "Reply",
    "StreamParser",
    "TextDelta",
    "decode_losses",
    "encode_losses",
    "losses_of",
    "sent_by",
    "server_of",
]

LossKind: TypeAlias = Literal["converted", "repaired", "dropped"]


class TextDelta(msgspec.Struct, frozen=True):
    """Some more words."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    """Some more of what the model tells of its thinking."""

    text: str


class CallDelta(msgspec.Struct, frozen=True):
    """Some more of a tool call that is being written."""

    index: int  # which of the step's calls
    name: str
    arguments: str  # the part that came now


class PendingReply(msgspec.Struct, frozen=True):
    """The backend works on the answer, which can be fetched by this id, also by another process."""

    id: str


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a render could not carry over unchanged."""

    kind: LossKind  # said in another way; mended so that the target takes it; left out
    where: str  # in the context: `messages[3].content[1]`, `tools[0].parameters`, `options.seed`
    what: str  # what it is: `image`, `reasoning`, `tool call id`, …
    why: str  # in words


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The step is whole: what the model said, with the vendor's own ids for its calls."""

    message: Message
    usage: Usage = Usage()
    stop: str | None = None  # why it stopped, in the vendor's word
    stop_kind: StopKind | None = None  # what that means, where the word alone does not tell
    losses: tuple[Loss, ...] = ()  # of the request that was sent and of the answer


ModelEvent: TypeAlias = TextDelta | ReasoningDelta | CallDelta | PendingReply | Finished


class Model(Protocol):
    """What takes a step.

    One that sends conversations elsewhere should also have a property `server`, a name or an address
    that is recorded with each thread; see `server_of`.
    """

    @property
    def backend(self) -> str:
        """Return its name, `provider:model`."""
        ...

    def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Answer `context`.  Ends with `Finished`; raises if it cannot, having changed nothing.

        A step that ends after `Pending` without `Finished` is taken again with `context.pending`.
        """
        ...


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """A request in a vendor's format, and what could not be carried over unchanged."""

    body: dict[str, Any]
    losses: tuple[Loss, ...] = ()
    names: Mapping[str, str] = {}  # tools that go by another name here: what they are called, by that name


class Asked(Context, frozen=True, kw_only=True):
    """The context that a request shows, and what of the request it does not hold as it was."""

    losses: tuple[Loss, ...] = ()


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A vendor's answer, read."""

    message: (
        Message  # with the vendor's own call ids, made unique; what only it can read is in vendor_metadata
    )
    stop: str | None = None  # why it stopped, in the vendor's word
    stop_kind: StopKind | None = None  # what that means, where the word alone does not tell
    pending: str | None = None  # the id by which the answer is fetched later; None: it is here
    usage: Usage = Usage()
    events: tuple[ModelEvent, ...] = ()  # the same as a run would be told it; the last is `Finished`
    losses: tuple[Loss, ...] = ()  # what the canonical form cannot say; it stays in vendor_metadata
    others: tuple[Message, ...] = ()  # further choices, where several were asked for


class StreamParser(Protocol):
    """A stream that is being read, in pieces of any size."""

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Take some more bytes; what they tell."""
        ...

    def close(self) -> Reply:
        """Return the stream has ended; what was said in all.  Raises `Invalid` if it was cut off before anything was whole."""
        ...


class Adapter(Protocol):
    """One vendor's wire format."""

    @property
    def api(self) -> str:
        """Return its name, such as `openai-chat`."""
        ...

    def render(self, context: Context, *, model: str, provider: str | None = None) -> Rendered:
        """Return a request that the vendor takes, whatever the history looks like; `provider` is whose server it goes to."""
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
        """Return how well the format, or that model on that server, does one thing of `capabilities.Capability`."""
        ...


def server_of(model: Model) -> str | None:
    """Return the server that a model's next step would go to; None: it names none."""
    return getattr(model, "server", None)


def sent_by(model: object) -> Sent | None:
    """Return how a model's requests are made, if it says so with `sent`; None: it takes contexts as they are."""
    found: object = getattr(model, "sent", None)
    return found if isinstance(found, Sent) else None


def losses_of(*reports: Sequence[Loss]) -> tuple[Loss, ...]:
    """Return several reports as one, each entry once, in order."""
    return tuple(dict.fromkeys(loss for report in reports for loss in report))


def encode_losses(losses: Sequence[Loss]) -> bytes:
    """Return a report as it is kept."""
    return canonical.encode(msgspec.to_builtins(list(losses)))


def decode_losses(body: bytes) -> tuple[Loss, ...]:
    """Return the report that was kept; raises `Corrupt` if it is none."""
    try:
        return msgspec.json.decode(body, type=tuple[Loss, ...])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(
            f"a stored report of losses cannot be read: {error}.",
            advice="Run `perdure verify`.",
            code="losses_unreadable",
        ) from error
