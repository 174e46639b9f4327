"""A checkpoint as a document: YAML or JSON in the envelope that people read, exchange and store.

    apiVersion: perdure.dev/v1alpha1
    kind: StateCheckpoint
    metadata: {name: chk-<first digits of the digest>}
    spec: conversationRef, fromBackend, toBackend, summary, activeArtifacts, relevantMemoryRefs, and what makes it
          checkable: the commit, the ledger's position, the claims with their sources, the calls, what waits

The document has everything that the object has, and reading it gives the same bytes; `summary` and `validation` are
written even if they are empty.  Documents of the format's first API group are read, and written back unchanged.
"""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from perdure.errors import Invalid, NotFound
from perdure.model.canonical import Json, prepared
from perdure.model.checkpoint import (
    NO_SUMMARY,
    NO_VALIDATION,
    Checkpoint,
    Claim,
    Done,
    Many,
    Pending,
    Summary,
    Told,
    Validation,
)
from perdure.model.commit import NO_LEDGER, LedgerRead
from perdure.model.config_text import Document, Place, read_yaml, write_yaml
from perdure.model.digest import Digest
from perdure.model.effect import Effect
from perdure.model.head import MAIN
from perdure.switching.checkpoint.stored import name_of, object_of

__all__ = ["DO_NOT_REPEAT", "Envelope", "enclose", "load_checkpoint", "read"]

API_VERSION = "perdure.dev/v1alpha1"
KIND = "StateCheckpoint"
DO_NOT_REPEAT = "already done: do not repeat"
MAY_HAVE_HAPPENED = "may have happened: do not repeat"

_OWN = "perdure.dev/"
_GROUPS = (_OWN, "joch.dev/")
_ALWAYS: dict[str, Any] = {
    "summary": {"userGoal": "", "currentTask": "", "decisions": [], "openQuestions": []},
    "validation": {"ok": True},
}
_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[(\d+)\]|\[\.\.\.\]")


class _DocumentPart(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    """A part of a document: names in camel case, unknown fields refused."""


class _Ref(_DocumentPart, frozen=True):
    name: str


# Without `omit_defaults`: `idempotent: false` has to be written too.
class _Effects(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    level: Effect
    idempotent: bool = False


class _CallDocument(_DocumentPart, frozen=True):
    id: str
    tool: str
    args: str
    side_effects: _Effects
    state: str
    outcome: Literal["done", "not_done"] | None = None
    result_ref: str | None = None
    idempotency_key: str | None = None
    backend: str | None = None
    elsewhere: bool = False
    note: str | None = None  # for readers; it follows from the other fields


class _Many(_DocumentPart, frozen=True):
    tool: str
    count: int
    calls: tuple[_CallDocument, ...]


class _Spec(_DocumentPart, frozen=True):
    """The fields of a checkpoint, in the order in which people read them."""

    conversation_ref: _Ref
    timeline: str = MAIN
    from_backend: str | None = None
    to_backend: str | None = None
    summary: Summary = NO_SUMMARY
    active_goals: tuple[str, ...] = ()
    active_artifacts: tuple[str, ...] = ()
    relevant_memory_refs: tuple[str, ...] = ()
    pending_approvals: tuple[Pending, ...] = ()
    tool_calls: tuple[_CallDocument, ...] = ()
    tool_calls_before: int = 0
    ledger_entries_before: int = 0
    earlier_tool_calls: tuple[_Many, ...] = ()
    earlier_tool_calls_others: int = 0
    model_summary: Told | None = None
    claims: tuple[Claim, ...] = ()
    commit: Digest | None = None
    ledger: LedgerRead = NO_LEDGER
    extractor: str = ""
    validation: Validation = NO_VALIDATION


class _Document(_DocumentPart, frozen=True):
    api_version: str
    kind: str
    metadata: _Ref
    spec: _Spec


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint with its name, as one document."""

    checkpoint: Checkpoint
    name: str
    api_version: str = API_VERSION

    @property
    def is_named_after_its_content(self) -> bool:
        """True if the name matches the content: then the document was not altered since it was written."""
        return self.name == name_of(object_of(self.checkpoint).digest)

    def shape(self) -> dict[str, Json]:
        """Return the document as plain JSON, in the order in which it is written."""
        document = _Document(
            api_version=self.api_version,
            kind=KIND,
            metadata=_Ref(name=self.name),
            spec=_spec_of(self.checkpoint),
        )
        shape = cast("dict[str, Any]", msgspec.json.decode(msgspec.json.encode(document)))
        if self.api_version.startswith(_OWN):
            shape["spec"] = _with_required_fields(shape["spec"])
        return shape

    def yaml(self) -> str:
        """Return the document as YAML."""
        return write_yaml(self.shape())


def enclose(checkpoint: Checkpoint) -> Envelope:
    """Return the checkpoint as a document, named after its content."""
    return Envelope(checkpoint=checkpoint, name=name_of(object_of(checkpoint).digest))


def load_checkpoint(source: str | PathLike[str]) -> Envelope:
    """Read a StateCheckpoint from a YAML or JSON text, or from the file at a path (a `pathlib.Path`, not a str).

    Raises `Invalid`, naming the line, if it is none.  Nothing is written.
    """
    if isinstance(source, str):
        return read(source)
    if not isinstance(source, PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"a checkpoint is read from a text or a path, not from {source!r}; nothing was read.",
            code="not_text_or_path",
        )
    try:
        text = Path(source).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise Invalid(
            f"{source} is not UTF-8: {error}; nothing was read.", code="not_utf8", path=str(source)
        ) from error
    except OSError as error:
        raise NotFound(
            f"the file {source} could not be read: {error}; nothing was read.",
            code="file_unreadable",
            path=str(source),
        ) from error
    return read(text, name=str(source))


def read(text: str, *, name: str = "the document") -> Envelope:
    """Read the checkpoint in a YAML or JSON text; raises `Invalid`, naming the line, if it is none."""
    document = read_yaml(text, name=name)
    _check_head(document)
    try:
        found = msgspec.convert(document.value, prepared(_Document))
    except msgspec.ValidationError as error:
        raise _misshapen(document, str(error)) from error
    return Envelope(
        checkpoint=_checkpoint_of(found.spec), name=found.metadata.name, api_version=found.api_version
    )


def _check_head(document: Document) -> None:
    value = document.value
    if not isinstance(value, dict):
        raise document.wrong((), f"this is no {KIND}")
    group = value.get("apiVersion")
    if not isinstance(group, str) or not group.startswith(_GROUPS):
        raise document.wrong(("apiVersion",), f"it is not {API_VERSION}")
    if value.get("kind") != KIND:
        raise document.wrong(("kind",), f"it is not {KIND}")


def _spec_of(checkpoint: Checkpoint) -> _Spec:
    return _Spec(
        conversation_ref=_Ref(name=checkpoint.conversation),
        timeline=_same(checkpoint.timeline, MAIN),
        from_backend=checkpoint.from_backend,
        to_backend=checkpoint.to_backend,
        summary=_same(checkpoint.summary, NO_SUMMARY),
        active_goals=checkpoint.active_goals,
        active_artifacts=checkpoint.active_artifacts,
        relevant_memory_refs=checkpoint.relevant_memory_refs,
        pending_approvals=checkpoint.pending_approvals,
        tool_calls=tuple(_call_of(done) for done in checkpoint.calls),
        tool_calls_before=checkpoint.calls_before,
        ledger_entries_before=checkpoint.entries_before,
        earlier_tool_calls=tuple(
            _Many(tool=many.tool, count=many.count, calls=tuple(map(_call_of, many.calls)))
            for many in checkpoint.earlier
        ),
        earlier_tool_calls_others=checkpoint.earlier_others,
        model_summary=checkpoint.told,
        claims=checkpoint.claims,
        commit=checkpoint.commit,
        ledger=_same(checkpoint.ledger, NO_LEDGER),
        extractor=checkpoint.extractor,
        validation=_same(checkpoint.validation, NO_VALIDATION),
    )


def _checkpoint_of(spec: _Spec) -> Checkpoint:
    return Checkpoint(
        conversation=spec.conversation_ref.name,
        timeline=spec.timeline,
        from_backend=spec.from_backend,
        to_backend=spec.to_backend,
        summary=spec.summary,
        active_goals=spec.active_goals,
        active_artifacts=spec.active_artifacts,
        relevant_memory_refs=spec.relevant_memory_refs,
        commit=spec.commit,
        ledger=spec.ledger,
        extractor=spec.extractor,
        claims=spec.claims,
        calls=tuple(_done_of(call) for call in spec.tool_calls),
        calls_before=spec.tool_calls_before,
        entries_before=spec.ledger_entries_before,
        earlier=tuple(
            Many(tool=many.tool, count=many.count, calls=tuple(map(_done_of, many.calls)))
            for many in spec.earlier_tool_calls
        ),
        earlier_others=spec.earlier_tool_calls_others,
        pending_approvals=spec.pending_approvals,
        told=spec.model_summary,
        validation=spec.validation,
    )


def _call_of(done: Done) -> _CallDocument:
    return _CallDocument(
        id=done.call,
        tool=done.tool,
        args=done.args,
        side_effects=_Effects(level=done.effect, idempotent=done.idempotent),
        state=done.state,
        outcome=done.outcome,
        result_ref=done.result_ref,
        idempotency_key=done.idempotency_key,
        backend=done.backend,
        elsewhere=done.elsewhere,
        note=_note(done),
    )


def _note(done: Done) -> str | None:
    if not done.is_written:
        return None
    return DO_NOT_REPEAT if done.outcome == "done" or done.state == "succeeded" else MAY_HAVE_HAPPENED


def _done_of(call: _CallDocument) -> Done:
    return Done(
        call=call.id,
        tool=call.tool,
        args=call.args,
        effect=call.side_effects.level,
        idempotent=call.side_effects.idempotent,
        state=call.state,
        outcome=call.outcome,
        result_ref=call.result_ref,
        idempotency_key=call.idempotency_key,
        backend=call.backend,
        elsewhere=call.elsewhere,
    )


def _with_required_fields(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the fields in their order, with those that are written even if they are empty."""
    full = {key: {**nothing, **spec.get(key, {})} for key, nothing in _ALWAYS.items()}
    order = [field.encode_name for field in msgspec.structs.fields(_Spec)]
    return {key: full.get(key, spec.get(key)) for key in order if key in spec or key in full}


def _same(value: Any, default: Any) -> Any:
    """Return the default object itself if the value equals it, because only that object is left out."""
    return default if value == default else value


def _misshapen(document: Document, message: str) -> Invalid:
    """Return an error that names the line, for a message of msgspec that names the place (`$.spec.summary[0]`)."""
    what, _, where = message.partition(" - at `$")
    steps = [int(index) if index else name for name, index in _STEP.findall(where.rstrip("`"))]
    unknown = re.search(r"unknown field `([^`]*)`", what)
    place: Place = (*steps, unknown[1]) if unknown else tuple(steps)
    return document.wrong(place, what[:1].lower() + what[1:])
