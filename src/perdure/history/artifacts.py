"""Stores and reads artifacts: bulky content, streamed in and out, stored once however often it is put.

Content is cut into chunks, and chunks are written as they fill up, so that memory holds a
few of them whatever the size.  Readers do not see chunks alone: an artifact becomes visible
through one last write, either a commit with an `artifact.created` event or, for a direct put,
a write that only lists it (cell `artifact/<digest>`).

During an upload the cell `upload/<id>` names the chunks written so far.  Retention removes the
chunks of an abandoned upload only after marking that cell, and the engine then refuses every
further write of the upload: so either the chunks are still there, or the put fails.

`preview` returns the beginning of an artifact for a prompt or a person.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import TypeAlias

import msgspec

from perdure.engines.contract import Cell, CellWrite, Write
from perdure.engines.loops import Attempts
from perdure.errors import Conflict, Corrupt, Forgotten, InDoubt, Invalid, NotFound
from perdure.history.space import (
    Space,
    read_record,
)
from perdure.model import canonical, names
from perdure.model.artifact import (
    CHUNK_BYTES,
    Artifact,
    check_media_type,
    decode_artifact,
    encode_artifact,
    reference,
    sniff,
)
from perdure.model.digest import Digest, Kind, Object, digest_of

__all__ = [
    "UPLOAD",
    "Listed",
    "Piece",
    "Staged",
    "check_upload",
    "get",
    "listing",
    "ls",
    "publish",
    "put",
    "show",
    "stage",
    "stage_objects",
    "upload_of",
    "Preview",
    "preview",
]


LISTED = "artifact/"  # cells of listed artifacts
UPLOAD = "upload/"  # cells of uploads that are under way

Piece: TypeAlias = bytes | bytearray | memoryview
"""Some of the content."""

_BATCH = 4  # chunks in one write


class Listed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of an artifact without reading its content."""

    digest: Digest
    media_type: str
    size: int
    sha256: str
    name: str | None = None
    at: int | None = None  # µs since 1970, UTC, when it was listed; None: it never was
    call: str | None = None  # the call whose result it is
    run: str | None = None
    commit: Digest | None = None  # the commit that named it, or that has the call


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact that readers do not see yet.  The write that makes it visible carries `objects` and `cells`."""

    digest: Digest
    artifact: Artifact
    objects: tuple[Object, ...]  # what is still to be written
    cells: tuple[CellWrite, ...] = ()  # ends the upload; refused if its chunks were removed


class Upload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The value of an upload's cell."""

    at: int  # µs since 1970, UTC, when it began
    chunks: tuple[Digest, ...]  # written so far
    expired: bool = False  # retention has marked it as abandoned


class _Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The value of a listing cell."""

    media_type: str
    size: int
    sha256: str
    at: int
    name: str | None = None


_entries = msgspec.json.Decoder(_Entry)
_uploads = msgspec.json.Decoder(Upload)


def put(
    space: Space, chunks: Iterable[Piece], *, media_type: str | None = None, name: str | None = None
) -> Digest:
    """Store the content that `chunks` make up and list it; return the artifact's digest.

    Without `media_type` the type is guessed from the first bytes.  Raises `Invalid`, having
    listed nothing, if the content is larger than the space's limit.
    """
    return publish(space, stage(space, chunks, media_type=media_type), name=name)


def stage(space: Space, chunks: Iterable[Piece], *, media_type: str | None = None) -> Staged:
    """Write the content that `chunks` make up, except for the last few; readers do not see it yet."""
    if media_type is not None:
        check_media_type(media_type)
    if isinstance(chunks, tuple) and len(chunks) == 1:
        staged = _in_one_chunk(space, chunks[0], media_type)
        if staged is not None:
            return staged
    upload = _Uploading(space)
    for chunk in _cut(chunks):
        upload.take(chunk)
    return upload.finish(media_type)


def _in_one_chunk(space: Space, content: Piece, media_type: str | None) -> Staged | None:
    """Return what an upload makes of content that is one chunk; None if it is more, or no bytes."""
    if type(content) is not bytes or not 0 < len(content) <= min(
        CHUNK_BYTES, space.limits.artifact_bytes_max
    ):
        return None
    chunk = Object.of(Kind.VALUE, content)
    whole = Artifact(
        chunks=(chunk.digest,),
        media_type=media_type or sniff(content, whole=True),
        sha256=sha256(content).hexdigest(),
        size=len(content),
    )
    described = Object.of(Kind.ARTIFACT, encode_artifact(whole))
    return Staged(digest=described.digest, artifact=whole, objects=(chunk, described))


def stage_objects(
    space: Space, objects: Iterable[Object]
) -> tuple[tuple[Object, ...], tuple[CellWrite, ...]]:
    """Write the objects of a large value, except for the last few; return these, and the cell that ends the upload.

    The write that uses the value carries both, as it does for an artifact.
    """
    upload = _Uploading(space)
    size = 0
    for each in objects:
        if size + len(each.body) > space.limits.value_bytes_max:
            upload.flush()
            size = 0
        size += len(each.body)
        upload.add(each)
    return upload.rest()


def publish(space: Space, staged: Staged, *, name: str | None = None) -> Digest:
    """Make `staged` visible by a write of its own that lists it.

    Raises `Conflict`, having listed nothing, if retention marked the upload as abandoned.
    """
    attempts = Attempts(
        f"the listing of artifact {staged.digest}", f"artifact {staged.digest} was not listed"
    )
    while True:
        attempts.begin()
        listed = listing(space, staged, name=name)
        cells = (*staged.cells, *([listed] if listed else ()))
        write = _write(space, objects=staged.objects, cells=cells)
        try:
            _apply(space, write)
        except Conflict:
            for cell in staged.cells:
                check_upload(space, cell)
            if listed is None or listed.expected == _revision(space, listed.name):
                raise  # it was not about the listing
        else:
            return staged.digest


def listing(space: Space, staged: Staged, *, name: str | None = None) -> CellWrite | None:
    """Return the cell that lists `staged`, for the write that makes it visible; None if it is listed already.

    A second listing changes the name if it gives another one, and nothing else.
    """
    if name is not None:
        names.check_label("artifact name", name)
    cell = space.engine.cell(space.name, LISTED + staged.digest)
    before = read_record(cell, _entries) if cell and cell.value is not None else None
    if before and (name is None or name == before.name):
        return None
    whole = staged.artifact
    entry = _Entry(
        media_type=whole.media_type,
        size=whole.size,
        sha256=whole.sha256,
        at=before.at if before else space.clock(),
        name=name,
    )
    value = canonical.encode_struct(entry)
    return CellWrite(name=LISTED + staged.digest, expected=cell.revision if cell else 0, value=value)


def get(space: Space, digest: Digest) -> Iterator[bytes]:
    """Return the content of the artifact, chunk by chunk.

    Raises `NotFound` or `Invalid` at once if there is no such artifact.  Each chunk is checked
    before it is returned; `Corrupt` is raised at the end if the whole is not what was put.
    """
    return _content(space, digest, _artifact(space, digest))


def show(space: Space, digest: Digest) -> Listed:
    """Return what is known of the artifact; raises `NotFound`."""
    cell = space.engine.cell(space.name, LISTED + digest)
    if cell and cell.value is not None:
        return _listed(cell)
    whole = _artifact(space, digest)
    return Listed(digest=digest, media_type=whole.media_type, size=whole.size, sha256=whole.sha256)


def ls(space: Space, *, after: str = "", limit: int) -> Sequence[Listed]:
    """Return listed artifacts by digest, those after the digest `after`."""
    cells = space.engine.cells(space.name, prefix=LISTED, after=LISTED + after, limit=limit)
    return [_listed(cell) for cell in cells]


def upload_of(cell: Cell) -> Upload:
    """Return what an upload's cell says; raises `Corrupt`."""
    return read_record(cell, _uploads)


class _Uploading:
    """One upload: hashes the content as a whole, cuts it into objects, writes a few at a time."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._cell = UPLOAD + space.ids()
        self._at = 0  # when it began; 0: nothing was written yet
        self._revision = 0  # of the cell
        self._whole = sha256()
        self._size = 0
        self._head = b""  # the first chunk, for finding the media type
        self._chunks: list[Digest] = []
        self._pending: list[Object] = []

    def take(self, chunk: bytes) -> None:
        """Add one chunk; raises `Invalid` if that is too much."""
        self._size += len(chunk)
        if self._size > self._space.limits.artifact_bytes_max:
            raise Invalid(
                f"the artifact is larger than {self._space.limits.artifact_bytes_max} bytes; it was not stored.",
                code="artifact_too_large",
                advice="Split it, or raise the limit with which the store was opened.",
                limit=self._space.limits.artifact_bytes_max,
            )
        if len(self._pending) == _BATCH:
            self.flush()
        self._whole.update(chunk)
        self._head = self._head or chunk
        self.add(Object.of(Kind.VALUE, chunk))

    def add(self, piece: Object) -> None:
        """Add one object."""
        self._chunks.append(piece.digest)
        self._pending.append(piece)

    def finish(self, media_type: str | None) -> Staged:
        """Return the objects still to write, and the cell that ends the upload."""
        whole = Artifact(
            chunks=tuple(self._chunks),
            media_type=media_type or sniff(self._head, whole=len(self._chunks) < 2),
            sha256=self._whole.hexdigest(),
            size=self._size,
        )
        described = Object.of(Kind.ARTIFACT, encode_artifact(whole))
        pending, cells = self.rest()
        return Staged(digest=described.digest, artifact=whole, objects=(*pending, described), cells=cells)

    def rest(self) -> tuple[tuple[Object, ...], tuple[CellWrite, ...]]:
        """Return the objects still to write, and the cell that ends the upload, if it has begun."""
        ended = CellWrite(name=self._cell, expected=self._revision, value=None)
        return tuple(self._pending), (ended,) if self._revision else ()

    def flush(self) -> None:
        """Write the pending chunks, and record them in the cell."""
        upload = Upload(at=self._at or self._space.clock(), chunks=tuple(self._chunks))
        progress = CellWrite(name=self._cell, expected=self._revision, value=canonical.encode_struct(upload))
        try:
            _apply(self._space, _write(self._space, objects=self._pending, cells=(progress,)))
        except Conflict:
            check_upload(self._space, progress)
            raise
        self._at = upload.at
        self._revision += 1
        self._pending = []


def _cut(pieces: Iterable[Piece]) -> Iterator[bytes]:
    """Yield the same content in chunks of CHUNK_BYTES, the last one shorter; none for no content."""
    chunk = bytearray()
    for piece in pieces:
        rest = _flat(piece)
        while rest:
            room = CHUNK_BYTES - len(chunk)
            chunk += rest[:room]
            rest = rest[room:]
            if len(chunk) == CHUNK_BYTES:
                yield bytes(chunk)
                chunk.clear()
    if chunk:
        yield bytes(chunk)


def _flat(piece: Piece) -> memoryview:
    """Return the bytes of one piece; raises `Invalid` if it is not bytes."""
    try:
        return memoryview(piece).cast("B")
    except TypeError as error:
        raise Invalid(
            f"content is bytes, not {type(piece).__name__}; it was not stored.",
            code="content_not_bytes",
            advice="Encode text first, or open its file in binary mode.",
            type=type(piece).__name__,
        ) from error


def _write(space: Space, *, objects: Iterable[Object], cells: tuple[CellWrite, ...]) -> Write:
    """Return a write that moves no head.  Its op_id is new: content stored twice is stored once."""
    supplied = tuple(objects)
    intent = {"objects": [each.digest for each in supplied], "cells": [cell.name for cell in cells]}
    return Write(
        space=space.name,
        op_id="artifact/" + space.ids(),
        intent=digest_of(Kind.BODY, canonical.encode(intent)),
        fences=space.fences,
        objects=supplied,
        cells=cells,
    )


def _apply(space: Space, write: Write) -> None:
    """Have the engine apply `write`; if the outcome is in doubt, ask once whether it was applied."""
    try:
        space.engine.apply(write)
    except InDoubt:
        if space.engine.recorded(space.name, write.op_id) is None:
            raise


def _revision(space: Space, name: str) -> int:
    cell = space.engine.cell(space.name, name)
    return cell.revision if cell else 0


def check_upload(space: Space, cell: CellWrite) -> None:
    """Raise `Conflict` if retention marked the upload as abandoned."""
    if _revision(space, cell.name) != cell.expected:
        raise Conflict(
            "an upload took longer than the retention policy allows, and its chunks were removed; "
            "the artifact was not listed.",
            code="upload_expired",
            advice="Put it again.",
        )


def _artifact(space: Space, digest: Digest) -> Artifact:
    try:
        found = space.engine.objects(space.name, (digest,))[0]
    except Forgotten:
        raise
    except NotFound as error:  # the caller gave an unknown digest, unless the thread lists it
        cell = space.engine.cell(space.name, LISTED + digest)
        raise (error if cell is None or cell.value is None else space.absence(digest)) from None
    if found.kind is not Kind.ARTIFACT:
        raise NotFound(
            f"{digest} is a {found.kind}, not an artifact; nothing was returned.",
            code="not_an_artifact",
            digest=digest,
            found=str(found.kind),
        )
    return decode_artifact(found.body)


def _content(space: Space, digest: Digest, whole: Artifact) -> Iterator[bytes]:
    plain, size = sha256(), 0
    for chunk in whole.chunks:
        body = space.body(chunk)
        plain.update(body)
        size += len(body)
        yield body
    if size != whole.size or plain.hexdigest() != whole.sha256:
        raise Corrupt(
            f"artifact {digest} is {size} bytes with SHA-256 {plain.hexdigest()}, not {whole.size} bytes with "
            f"{whole.sha256}; do not use what was read.",
            code="artifact_damaged",
            advice="Run `perdure verify`.",
            artifact=digest,
        )


def _listed(cell: Cell) -> Listed:
    entry = read_record(cell, _entries)
    return Listed(
        digest=Digest(cell.name.removeprefix(LISTED)),
        media_type=entry.media_type,
        size=entry.size,
        sha256=entry.sha256,
        name=entry.name,
        at=entry.at,
    )


_TEXTUAL = ("application/json", "application/xml", "application/yaml", "application/javascript")


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of an artifact, with the type and the size of the whole."""

    reference: str
    media_type: str
    size: int
    text: str | None  # None: it is no text
    is_whole: bool

    def __str__(self) -> str:
        """Return the preview as a message shows it."""
        what = f"[{self.reference}: {self.media_type}, {self.size:,} bytes]"
        if self.text is None:
            return what
        return (
            f"{what}\n{self.text}"
            if self.is_whole
            else f"{what}\n{self.text}\n[… the rest is in the artifact]"
        )


def preview(space: Space, digest: Digest, *, bytes_max: int = 2_000) -> Preview:
    """Return the first `bytes_max` bytes of an artifact, if it is text; only the chunks that hold them are read."""
    if type(bytes_max) is not int or bytes_max < 1:
        raise Invalid(
            f"bytes_max is a number above 0, not {bytes_max!r}; nothing was read.", code="bytes_max_invalid"
        )
    known = show(space, digest)
    text = None
    if known.media_type.startswith("text/") or known.media_type.partition(";")[0] in _TEXTUAL:
        text = _head(space, digest, bytes_max)
    return Preview(
        reference=reference(digest),
        media_type=known.media_type,
        size=known.size,
        text=text,
        is_whole=text is not None and known.size <= bytes_max,
    )


def _head(space: Space, digest: Digest, bytes_max: int) -> str:
    head = b""
    for piece in get(space, digest):
        head += piece[: bytes_max - len(head)]
        if len(head) >= bytes_max:
            break
    return head.decode("utf-8", "ignore" if len(head) >= bytes_max else "replace")
