"""Collects and reports what a verification found: faults by name, and how much was checked."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import TypeAlias

import msgspec

from perdure.errors import Corrupt, Forgotten, PerdureError, Unavailable
from perdure.history.space import STORE, store_log
from perdure.model import canonical
from perdure.model.canonical import prepared
from perdure.model.digest import Digest

__all__ = [
    "DAMAGE",
    "Fault",
    "Findings",
    "Progress",
    "VerifiedPoint",
    "VerifyReport",
    "decode_points",
    "encode_points",
]

FAULTS_MAX = 10_000

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called now and then with the space, how much is checked, and how much there is to check."""

# What reading damaged bytes can raise.  A verification expects damaged input: none of it may stop the check.
DAMAGE = (
    PerdureError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it was written, or not as the rules require."""

    space: str
    kind: str  # of object; or head, ledger, cell, space
    what: str
    digest: Digest | None = None  # of the object; None: it has none, or it could not be read
    name: str | None = None  # of the timeline, cell or entry
    place: str | None = None  # the space in words, of a message with its turn; None: it was not looked up

    def __str__(self) -> str:
        """Return what is damaged and how."""
        named = " ".join(part for part in (self.kind, self.digest or self.name) if part)
        return f"{named} in {self.place or self.space}: {self.what}"


class VerifiedPoint(msgspec.Struct, frozen=True, kw_only=True):
    """How far a space was checked and found to be sound.

    It names the moves and the end of the ledger at that point.  They bind everything before it, so a later check
    that begins here finds out whether the history that it relies on is still the same.
    """

    standing: int  # of the space
    commits: int  # that were stored
    moves: dict[str, tuple[int, Digest]] = {}  # by timeline: the version and the digest of its last move
    position: int = 0  # of the last ledger entry
    chain: Digest | None = None


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked and what is wrong."""

    faults: tuple[Fault, ...]
    checked: dict[str, int]  # by kind
    forgotten: int = (
        0  # objects of which only digests are left, by a policy: no content of theirs was checked
    )
    redacted: int = 0  # objects of which only digests are left, because a person had them redacted
    unchecked: int = 0  # commits whose state could not be computed again, as a part was forgotten or damaged
    unnamed: int = 0  # faults beyond the first ten thousand
    written: int = 0  # spaces that others wrote to during the check: what they wrote then was not checked
    partial: int = 0  # spaces of which only what was written since the given point was checked
    points: dict[str, VerifiedPoint] = {}  # by space: how far it is sound, for a later check to begin at

    @property
    def ok(self) -> bool:
        """True if there is no fault."""
        return not self.faults

    def log(self, store: str) -> None:
        """Write one line to the log: how many faults `store` has."""
        many = len(self.faults)
        level = logging.INFO if self.ok else logging.ERROR
        store_log().log(level, "verified %s: %d %s", store, many, "fault" if many == 1 else "faults")


class _SavedPoints(msgspec.Struct, frozen=True, kw_only=True):
    """A file of points: the digest is over the points, so that a file that was cut or edited is refused."""

    points: dict[str, VerifiedPoint]
    sha256: str


def encode_points(points: Mapping[str, VerifiedPoint]) -> bytes:
    """Return the bytes of a file that keeps points outside the store."""
    return canonical.encode_struct(_SavedPoints(points=dict(points), sha256=_points_digest(points))) + b"\n"


def decode_points(body: bytes) -> dict[str, VerifiedPoint]:
    """Return the points of such a file; raises `Corrupt` if it is not one, or not as it was written."""
    try:
        saved = msgspec.json.decode(body, type=prepared(_SavedPoints))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(
            f"this is not a file that `perdure verify --save` wrote ({error}); nothing was checked.",
            code="points_unreadable",
        ) from error
    if saved.sha256 != _points_digest(saved.points):
        raise Corrupt(
            "the file of verified points is not as `perdure verify --save` wrote it; nothing was checked.",
            code="points_damaged",
            advice="Verify without --since.",
        )
    return saved.points


def _points_digest(points: Mapping[str, VerifiedPoint]) -> str:
    return sha256(msgspec.json.encode(points, order="sorted")).hexdigest()


class Findings:
    """Collects faults and counts during a verification."""

    def __init__(self, progress: Progress | None) -> None:
        """Call `progress` now and then."""
        self.progress = progress
        self.total = 0  # of the weights of all spaces
        self._done = 0  # of those that are checked
        self.written = self.partial = self.forgotten = self.redacted = 0
        self.points: dict[str, VerifiedPoint] = {}
        self._faults: dict[Fault, None] = {}
        self._unnamed = 0
        self._unchecked = 0
        self._checked: Counter[str] = Counter()
        self.space = STORE  # the one that is being checked

    def add(self, kind: str, what: str, *, digest: Digest | None = None, name: str | None = None) -> None:
        """Report one fault of the space that is being checked."""
        if len(self._faults) >= FAULTS_MAX:
            self._unnamed += 1
            return
        self._faults[Fault(space=self.space, kind=kind, what=what, digest=digest, name=name)] = None

    def count(self, kind: str, number: int = 1) -> None:
        """Count checked things."""
        self._checked[str(kind)] += number

    def count_all(self, numbers: Mapping[str, int]) -> None:
        """Count checked things of several kinds."""
        for kind, number in numbers.items():
            self._checked[str(kind)] += number

    def skip(self) -> None:
        """Count a commit whose state could not be computed again."""
        self._unchecked += 1

    def tell(self, weight: int, *, is_done: bool = False) -> None:
        """Report progress: how much of the space that is being checked is done."""
        if self.progress:
            self.progress(self.space, self._done + weight, self.total)
            self._done += weight if is_done else 0

    @property
    def faults(self) -> int:
        """The number of faults so far."""
        return len(self._faults) + self._unnamed

    @contextmanager
    def watching(
        self, kind: str, *, digest: Digest | None = None, name: str | None = None
    ) -> Generator[None]:
        """Report the damage that the block raises as a fault.  Forgotten content is no fault."""
        try:
            yield
        except Unavailable:
            raise  # the store cannot be read now; its content may be right
        except Forgotten:
            pass
        except DAMAGE as error:
            what = error.message if isinstance(error, PerdureError) else str(error)  # without its advice
            self.add(kind, what or type(error).__name__, digest=digest, name=name)

    def report(self) -> VerifyReport:
        """Return everything so far."""
        return VerifyReport(
            faults=tuple(self._faults),
            checked=dict(sorted(self._checked.items())),
            forgotten=self.forgotten,
            redacted=self.redacted,
            unchecked=self._unchecked,
            unnamed=self._unnamed,
            written=self.written,
            partial=self.partial,
            points=self.points,
        )
