"""A law about many cases is one test: it names every case for which the law does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["for_each"]


def for_each(cases: Iterable[Any]) -> Callable[[Callable[[Any, Any], None]], Callable[..., None]]:
    """Make a law about one case a test of all `cases`; called with a case, it is about that one alone.

    A failure is an `ExceptionGroup` in which each error says its case.
    """
    known = tuple(cases)

    def decorate(law: Callable[[Any, Any], None]) -> Callable[..., None]:
        def test(self: Any, *case: Any) -> None:
            failures = [failure for each in case or known if (failure := _failure(law, self, each))]
            if failures:
                raise ExceptionGroup(
                    f"{law.__name__}: {len(failures)} of {len(case or known)} cases", failures
                )

        test.__name__, test.__qualname__, test.__doc__ = law.__name__, law.__qualname__, law.__doc__
        return test

    return decorate


def _failure(law: Callable[[Any, Any], None], suite: object, case: object) -> Exception | None:
    try:
        law(suite, case)
    except Exception as error:  # noqa: BLE001  # others' code: whatever it raises is told with the case
        error.add_note(f"case: {case!r}")
        return error
    return None
