"""A book-keeper that takes calls through the ledger of one thread."""

from __future__ import annotations

from pathlib import Path

from perdure.engines.contract import Engine
from perdure.engines.memory import MemoryEngine
from perdure.engines.sqlite import SqliteEngine
from perdure.history import artifacts
from perdure.history.artifacts import Staged
from perdure.ledger import call_identity, calls, repeat_guard
from perdure.ledger.call_identity import fingerprint_of
from perdure.ledger.calls import CallTransition, VersionedCall
from perdure.model.call import CallRecord, CallState
from perdure.model.canonical import Json, encode
from perdure.model.digest import Kind, Object
from perdure.model.effect import Effect
from perdure.model.event import MessageAppended
from perdure.model.head import MAIN
from perdure.model.message import Message, Text, encode_message
from perdure.projections.calls import Book, decode_transition
from tests.history.hand import Hand
from tests.selection import engines

ENGINES = engines("sqlite", "memory")
OPENAI, ANTHROPIC = "openai:gpt", "anthropic:claude"


def engine_of(kind: str, path: Path) -> Engine:
    """A new engine of that kind."""
    return MemoryEngine() if kind == "memory" else SqliteEngine(path / "store.db")


class Keeper(Hand):
    """Writes calls as a run would, with the words that asked for them committed first."""

    def record(
        self,
        id: str,
        *,
        tool: str = "pay",
        arguments: Json = None,
        effect: Effect = "external_write",
        timeline: str = MAIN,
        backend: str | None = OPENAI,
        key: str | None = None,
        idempotent: bool = False,
        label: str | None = None,
    ) -> CallRecord:
        """A proposed call that the message `said-<id>` asked for."""
        value: Json = {"amount": 1} if arguments is None else arguments
        body = encode(value)
        return CallRecord(
            id=id,
            tool=tool,
            state="proposed",
            args=Object.of(Kind.BODY, body).digest,
            args_size=len(body),
            at=self.space.clock(),
            fingerprint=fingerprint_of(tool, None, value),
            effect=effect,
            idempotent=idempotent,
            key=key or call_identity.default_key(self.space.label, id),
            timeline=timeline,
            label=label or f"said-{id}",
            backend=backend,
        )

    def ask_for(self, record: CallRecord) -> None:
        """Commit the message that asks for the call, on its timeline."""
        body = Object.of(Kind.BODY, encode_message(Message("assistant", (Text("I pay"),))))
        size = len(body.body)
        event = MessageAppended(id=record.label or "", role="assistant", body=body.digest, size=size)
        self.write(events=[event], objects=[body], timeline=record.timeline)

    def check(
        self, record: CallRecord, *, seen: int = 0, policy: repeat_guard.Policy = "ask"
    ) -> repeat_guard.Verdict:
        """What the guard says on the call's own line."""
        head = self.head(record.timeline).commit
        return repeat_guard.check(
            self.space, record, head=head, backend=record.backend, seen=seen, policy=policy
        )

    def starting(self, record: CallRecord, verdict: repeat_guard.Verdict | None = None) -> CallTransition:
        """The posting that starts a new call, past the guard."""
        cells = repeat_guard.starting(record, verdict or self.check(record))
        return calls.propose(record, "requested", "started").also(cells=cells)

    def start(self, record: CallRecord) -> VersionedCall:
        """Ask for a call and start it."""
        self.ask_for(record)
        return self.post(self.starting(record))

    def post(self, transition: CallTransition) -> VersionedCall:
        """Write one posting."""
        return calls.post(self.space, (transition,))[0]

    def move(self, held: VersionedCall, *states: CallState) -> VersionedCall:
        """Take a call on."""
        return self.post(calls.advance(held, *states, at=self.space.clock()))

    def succeed(self, held: VersionedCall, result: bytes = b'"paid"') -> VersionedCall:
        """Settle a call with a result."""
        transition = calls.settle(
            held, "succeeded", at=self.space.clock(), staged=self.staged(result), status="success"
        )
        return self.post(transition)

    def staged(self, content: bytes = b'"paid"') -> Staged:
        """An artifact that is not written yet."""
        return artifacts.stage(self.space, [content], media_type="application/json")

    def bodies(self) -> list[bytes]:
        """The entries of the ledger."""
        return [entry.body for entry in self.engine.entries(self.space.name, limit=10_000)]

    def book(self) -> Book:
        """What the log says."""
        book = Book()
        for body in self.bodies():
            book.take(decode_transition(body))
        return book
