"""Changesets: what happened in one step; accepted whole or not at all."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.model import canonical
from perdure.model.digest import Digest
from perdure.model.event import Event
from perdure.model.patch import Patch, check_version, unreadable

__all__ = ["NO_PATCH", "Changeset", "RunMeta", "StateAction", "decode_changeset", "encode_changeset"]


class RunMeta(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a run was when it made this step."""

    agent_version: str | None = None
    backend: str | None = None
    origin: str | None = None  # on a run's first commit: `input`, or `tool` if a tool of another run began it
    termination: str | None = None  # on its last commit: the state that it ended in


class StateAction(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A named intent behind ops: its payload by digest, and where it came from (`tool:book`)."""

    name: str
    source: str
    payload: Digest | None = None


NO_PATCH = Patch()  # one object: the encoder leaves a default out only where it is this very one


class Changeset(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Events, patch and reason of one step."""

    reason: str
    run_id: str | None = None
    parent_run_id: str | None = None
    run_meta: RunMeta | None = None
    events: tuple[Event, ...] = ()
    patch: Patch = NO_PATCH
    state_actions: tuple[StateAction, ...] = ()


_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Changeset)


def encode_changeset(changeset: Changeset) -> bytes:
    """The changeset's canonical bytes; an empty patch is left out, however it was made."""
    if not changeset.patch.ops and changeset.patch is not NO_PATCH:
        changeset = msgspec.structs.replace(changeset, patch=NO_PATCH)
    return canonical.encode_struct(changeset)


def decode_changeset(body: bytes) -> Changeset:
    """The changeset that `body` holds; raises `Corrupt` if it is not one, `Unsupported` if a newer Perdure wrote it."""
    try:
        changeset: Changeset = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise unreadable("changeset", error) from error
    check_version(changeset.patch)
    return changeset
