"""Collects and reports what a verification found: faults by name, and how much was checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

import msgspec

from perdure.errors import Forgotten, PerdureError, Unavailable
from perdure.history.space import STORE
from perdure.model.digest import Digest

__all__ = ["DAMAGE", "Fault", "Findings", "VerifyReport"]

FAULTS_MAX = 10_000

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

    def __str__(self) -> str:
        """Return what is damaged and how."""
        named = " ".join(part for part in (self.kind, self.digest or self.name) if part)
        return f"{named} in {self.space}: {self.what}"


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked and what is wrong."""

    faults: tuple[Fault, ...]
    checked: dict[str, int]  # by kind
    unchecked: int = 0  # commits whose state could not be computed again, as a part was forgotten or damaged
    unnamed: int = 0  # faults beyond the first ten thousand

    @property
    def ok(self) -> bool:
        """True if there is no fault."""
        return not self.faults


class Findings:
    """Collects faults and counts during a verification."""

    def __init__(self, progress: Callable[[str, int], None] | None) -> None:
        """Call `progress` now and then with the space and the number of checks so far."""
        self._progress = progress
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

    def tell(self) -> None:
        """Report progress."""
        if self._progress:
            self._progress(self.space, self._checked.total())

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
            self.add(kind, str(error) or type(error).__name__, digest=digest, name=name)

    def report(self) -> VerifyReport:
        """Return everything so far."""
        return VerifyReport(
            faults=tuple(self._faults),
            checked=dict(sorted(self._checked.items())),
            unchecked=self._unchecked,
            unnamed=self._unnamed,
        )
