"""What a verification found: faults by name, and how much was looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager

import msgspec

from perdure.errors import Forgotten, PerdureError, Unavailable
from perdure.history.space import STORE
from perdure.model.digest import Digest

__all__ = ["DAMAGE", "Fault", "Findings", "Report"]

FAULTS_MAX = 10_000

# What reading damaged bytes can end in.  Damaged input is what we are here for: none of it may stop us.
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
    """One thing that is not as it was written, or not as the rules want it."""

    space: str
    kind: str  # of object; or head, ledger, cell, space
    what: str
    digest: Digest | None = (
        None  # of the object; None for what has none, or where not even that could be read
    )
    name: str | None = None  # of the timeline, cell or entry

    def __str__(self) -> str:
        """Name the thing and say what is wrong with it."""
        named = " ".join(part for part in (self.kind, self.digest or self.name) if part)
        return f"{named} in {self.space}: {self.what}"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked and what is wrong."""

    faults: tuple[Fault, ...]
    checked: dict[str, int]  # by kind
    unchecked: int = 0  # commits whose state could not be computed again, as a part was forgotten or damaged
    unnamed: int = 0  # faults beyond the first ten thousand

    @property
    def ok(self) -> bool:
        """Whether nothing at all is wrong."""
        return not self.faults


class Findings:
    """Faults and counts while a verification is under way."""

    def __init__(self, progress: Callable[[str, int], None] | None) -> None:
        """Tell `progress` the space and how much was checked in all, now and then."""
        self._progress = progress
        self._faults: dict[Fault, None] = {}
        self._unnamed = 0
        self._unchecked = 0
        self._checked: Counter[str] = Counter()
        self.space = STORE  # the one that is being looked at

    def add(self, kind: str, what: str, *, digest: Digest | None = None, name: str | None = None) -> None:
        """Report one fault of the space that is being checked."""
        if len(self._faults) >= FAULTS_MAX:
            self._unnamed += 1
            return
        self._faults[Fault(space=self.space, kind=kind, what=what, digest=digest, name=name)] = None

    def count(self, kind: str, number: int = 1) -> None:
        """Note that so many more were looked at."""
        self._checked[str(kind)] += number

    def skip(self) -> None:
        """Note a commit whose state could not be computed again."""
        self._unchecked += 1

    def tell(self) -> None:
        """Report progress."""
        if self._progress:
            self._progress(self.space, self._checked.total())

    @contextmanager
    def watching(
        self, kind: str, *, digest: Digest | None = None, name: str | None = None
    ) -> Generator[None]:
        """Make a fault of whatever damage the block meets.  What was forgotten is none."""
        try:
            yield
        except Unavailable:
            raise  # the store, not what is in it
        except Forgotten:
            pass
        except DAMAGE as error:
            self.add(kind, str(error) or type(error).__name__, digest=digest, name=name)

    def report(self) -> Report:
        """Everything so far."""
        return Report(
            faults=tuple(self._faults),
            checked=dict(sorted(self._checked.items())),
            unchecked=self._unchecked,
            unnamed=self._unnamed,
        )
