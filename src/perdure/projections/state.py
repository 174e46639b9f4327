"""Defines the canonical state of an agent at one commit: five layers, none of them a vendor's.

    transcript   messages                          memory     what is remembered across threads
    ledger       calls and their outcomes          runtime    runs, attempts, approvals, locks
    working      task state, scratchpad, goals

Each layer has canonical bytes, so that two moments can be compared layer by layer.  A change
of backend changes none of them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.model import canonical
from perdure.model.call import CallRecord
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.message import encode_message
from perdure.model.ticket import Ticket
from perdure.projections.runtime import RuntimeState
from perdure.projections.transcript import TranscriptEntry
from perdure.projections.working_memory import WorkingMemory

__all__ = ["LAYERS", "CanonicalAgentState", "Ledger", "LongTermMemory", "Memorised"]

LAYERS = ("transcript", "ledger", "working", "memory", "runtime")


class Ledger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every call of the thread and every ticket, as of a position of the ledger."""

    calls: tuple[CallRecord, ...] = ()  # in the order in which they entered
    tickets: tuple[Ticket, ...] = ()


class Memorised(msgspec.Struct, frozen=True, omit_defaults=True):
    """One item of long-term memory, by the digest of its value."""

    id: str
    value: Digest


class LongTermMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The items of the owner's memory that are visible at the commit."""

    items: tuple[Memorised, ...] = ()  # those that count there, by id
    written: tuple[str, ...] = ()  # the items that this line wrote or forgot, in order


class CanonicalAgentState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a conversation at one commit, whichever backend continues it."""

    conversation: str  # the thread's id
    commit: Digest | None  # None: before the first
    transcript: tuple[TranscriptEntry, ...] = ()
    ledger: Ledger = Ledger()
    working: WorkingMemory = WorkingMemory()
    memory: LongTermMemory = LongTermMemory()
    runtime: RuntimeState = RuntimeState()

    def layers(self) -> dict[str, bytes]:
        """Return the canonical bytes of each layer, by its name."""
        return {
            "transcript": canonical.encode([_said(entry) for entry in self.transcript]),
            "ledger": canonical.encode_struct(self.ledger),
            "working": canonical.encode_struct(self.working),
            "memory": canonical.encode_struct(self.memory),
            "runtime": canonical.encode_struct(self.runtime),
        }

    def digests(self) -> dict[str, Digest]:
        """Return the digest of each layer's bytes, by its name."""
        return {name: digest_of(Kind.BODY, body) for name, body in self.layers().items()}


def _said(entry: TranscriptEntry) -> dict[str, Any]:
    """Return one message; its content and vendorMetadata are named by digest."""
    words = entry.words
    vendor = words.vendor_metadata if words else None
    shape: dict[str, Any] = {
        "id": entry.id,
        "role": entry.role,
        "commit": entry.commit,
        "state": entry.state,
        "at": entry.at,
        "run": entry.run,
        "provider": entry.provider,
        "model": entry.model,
        "usage": msgspec.to_builtins(entry.usage),
        "body": digest_of(Kind.BODY, encode_message(words)) if words else None,
        "vendor": digest_of(Kind.BODY, vendor.encode("utf-8", "surrogatepass")) if vendor else None,
        "forgotten": entry.forgotten,
    }
    return {name: value for name, value in shape.items() if value is not None}
