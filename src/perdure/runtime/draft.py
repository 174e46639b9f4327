"""Drafts: one commit of a run in the making.

Events, ops and whatever travels in the same write: postings of the ledger, cells.  A draft is
built on the root that the one before it leads to, so several can become one durable write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from perdure.engines.contract import CellWrite
from perdure.history.artifacts import Staged
from perdure.history.patching import Ops, Patched
from perdure.history.space import Space
from perdure.history.writer import Proposal
from perdure.model.changeset import NO_PATCH, RunMeta, StateAction
from perdure.model.commit import LedgerRead, Reads
from perdure.model.digest import Digest, Kind, Object
from perdure.model.event import Event, MessageAppended
from perdure.model.message import Message, check_message, encode_message
from perdure.model.run import Usage
from perdure.providers.contract import Loss, encode_losses

__all__ = ["Draft", "appended", "vendor_of"]


class Draft:
    """What one commit is going to hold."""

    __slots__ = (
        "_adopted",
        "_ops",
        "_space",
        "actions",
        "cells",
        "events",
        "forced",
        "meta",
        "objects",
        "reason",
        "root",
    )

    def __init__(self, space: Space, root: Digest, reason: str, *, forced: bool = False) -> None:
        """Begin on the map of that root; `forced`: it is committed even if nothing happened."""
        self._space = space
        self.reason, self.forced = reason, forced
        self.root = root  # of the map that it begins on
        self._ops: Ops | None = None  # most commits of a run change no state
        self._adopted: Patched | None = None
        self.events: list[Event] = []
        self.objects: list[Object] = []
        self.cells: list[CellWrite] = []
        self.actions: list[StateAction] = []
        self.meta: RunMeta | None = None

    def __bool__(self) -> bool:
        """Whether there is anything to commit."""
        return self.forced or bool(self.events) or bool(self._ops) or self._adopted is not None

    @property
    def ops(self) -> Ops:
        """What it changes in the state, to be added to."""
        assert self._adopted is None, "what was adopted is whole"
        if self._ops is None:
            self._ops = Ops(self._space, self.root)
        return self._ops

    @property
    def is_untouched(self) -> bool:
        """Whether nobody has looked at its state, or changed it."""
        return self._ops is None and self._adopted is None

    def adopt(self, patched: Patched) -> None:
        """Take over a patch that was made on the very map that this begins on; its values are kept elsewhere."""
        assert self.is_untouched
        self._adopted = patched

    def say(
        self,
        message: Message,
        *,
        id: str,
        backend: str | None = None,
        usage: Usage | None = None,
        losses: Sequence[Loss] = (),
        context: Digest | None = None,
    ) -> None:
        """Add a message to the conversation.

        `losses` are those of the step in which a model said it, `context` is the recipe of what it was shown.
        """
        event, objects = appended(message, id=id, backend=backend, usage=usage, context=context)
        if losses:
            kept = self.keep(encode_losses(losses))
            event = msgspec.structs.replace(event, losses=kept.digest)
        self.events.append(event)
        self.objects += objects

    def keep(self, body: bytes) -> Object:
        """Keep some bytes with this commit; the object that names them."""
        kept = Object.of(Kind.BODY, body)
        self.objects.append(kept)
        return kept

    def hold(self, staged: Iterable[Staged]) -> None:
        """Make artifacts visible with this commit, which names them."""
        for each in staged:
            self.objects += each.objects
            self.cells += each.cells

    def act(self, name: str, source: str) -> None:
        """Name an intent behind the ops."""
        self.actions.append(StateAction(name, source))

    def extend(self, events: Iterable[Event]) -> None:
        """Add events."""
        self.events.extend(events)

    def proposal(
        self, *, run: str, parent_run: str | None, reads: Reads, ledger: LedgerRead | None
    ) -> Proposal:
        """What is to be written."""
        patched = self._patched()
        return Proposal(
            reason=self.reason,
            root=patched.root,
            patch=patched.patch,
            events=tuple(self.events),
            objects=(*self.objects, *patched.objects),
            cells=(*self.cells, *patched.cells),
            outside=reads,
            ledger=ledger,
            run=run,
            parent_run=parent_run,
            run_meta=self.meta,
            state_actions=tuple(self.actions),
        )

    def _patched(self) -> Patched:
        if self._ops is not None:
            return self._ops.finish()
        if self._adopted is None:
            return Patched(patch=NO_PATCH, root=self.root)
        whole = self._adopted
        nodes = tuple([each for each in whole.objects if each.kind is Kind.NODE])
        return Patched(patch=whole.patch, root=whole.root, objects=nodes)


def appended(
    message: Message,
    *,
    id: str,
    backend: str | None = None,
    usage: Usage | None = None,
    context: Digest | None = None,
) -> tuple[MessageAppended, tuple[Object, ...]]:
    """The event that appends a message, and the bodies that hold its words."""
    check_message(message)
    body = Object.of(Kind.BODY, encode_message(message))
    vendor = vendor_of(message)
    provider, _, model = (backend or "").partition(":")
    event = MessageAppended(
        id=id,
        role=message.role,
        body=body.digest,
        size=len(body.body),
        vendor=vendor.digest if vendor else None,
        vendor_size=len(vendor.body) if vendor else 0,
        provider=provider or None,
        model=model or None,
        usage=usage,
        context=context,
    )
    return event, (body, vendor) if vendor else (body,)


def vendor_of(message: Message) -> Object | None:
    """The body of what only the vendor can read; None: there is nothing of that kind."""
    if message.vendor_metadata is None:
        return None
    return Object.of(Kind.BODY, message.vendor_metadata.encode("utf-8", "surrogatepass"))
