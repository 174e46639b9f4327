"""Wraps and checks the embedding function of a program.

The function takes a list of texts and returns a vector for each, all of one length.  Vectors are derived data:
with another function they are computed again.  A function is identified by the vector that it returns for a
fixed text, since nothing else about it is known.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any, TypeAlias, cast

from perdure.errors import Invalid, Unavailable
from perdure.model.fork_safety import ThreadLock

__all__ = ["Embed", "Embedder"]

Embed: TypeAlias = Callable[[list[str]], Sequence[Any]]
"""From texts to vectors: for each text a sequence of numbers, all of one length."""

_PROBE = "What is remembered is found again by what it means."
_WIDTH_MAX = 8_192


class Embedder:
    """An embedding function, checked at every use."""

    def __init__(self, function: Embed, *, gives_way: bool = False, similarity_min: float = -1.0) -> None:
        """Use `function`; it is not called yet.

        If it gives way, vectors of another function in a stored index are left there, and a temporary index is used.
        Texts whose vectors are less similar than `similarity_min` have nothing to do with each other.
        """
        if not callable(function):
            raise Invalid(
                f"embed is a function from a list of texts to a vector for each, not {function!r}; nothing was opened.",
                code="embed_invalid",
            )
        self._function, self.gives_way, self.similarity_min = function, gives_way, similarity_min
        self._lock = ThreadLock()
        self._width = 0
        self._name: str | None = None

    @property
    def name(self) -> str:
        """The identity of the function: the same for the same function, in any process."""
        with self._lock:
            if self._name is None:
                (vector,) = self._called([_PROBE])
                self._width = len(vector)
                rough = ",".join(f"{number:.3f}" for number in vector)
                self._name = f"{len(vector)}:{sha256(rough.encode()).hexdigest()[:32]}"
            return self._name

    @property
    def width(self) -> int:
        """The length of its vectors."""
        assert self.name
        return self._width

    def vectors(self, texts: Sequence[str]) -> list[bytes | None]:
        """Return the vector of each text as float32 of length 1; None for one that is all zeros.

        Raises `Unavailable` if the function raises, `Invalid` if it returns something else than vectors.
        """
        width = self.width
        vectors = self._called(list(texts))
        if any(len(vector) != width for vector in vectors):
            raise Invalid(
                f"the embedding function returned vectors of another length than {width}; nothing was searched.",
                code="vector_length_differs",
                width=width,
            )
        return [_unit(vector) for vector in vectors]

    def _called(self, texts: list[str]) -> list[list[float]]:
        try:
            given = cast("object", self._function(texts))
            returned = list(cast("Iterable[Any]", given)) if isinstance(given, Iterable) else None
        except Exception as error:  # the program's own code, which may raise anything
            raise Unavailable(
                f"the embedding function failed: {type(error).__name__}: {error}; nothing was searched.",
                code="embedding_failed",
            ) from error
        if returned is None:
            raise Invalid(
                f"the embedding function returned {given!r:.100}, not a vector for each text; nothing was searched.",
                code="vectors_missing",
            )
        vectors = [_numbers(vector) for vector in returned]
        if len(vectors) != len(texts):
            raise Invalid(
                f"the embedding function returned {len(vectors)} vectors for {len(texts)} texts; nothing was searched.",
                code="vector_count_differs",
            )
        if not all(0 < len(vector) <= _WIDTH_MAX for vector in vectors):
            raise Invalid(
                f"the embedding function returned a vector that is empty or longer than {_WIDTH_MAX}; nothing was "
                "searched.",
                code="vector_length_invalid",
            )
        return vectors


def _numbers(vector: Any) -> list[float]:
    try:
        numbers = [float(number) for number in vector]
    except (TypeError, ValueError) as error:
        raise Invalid(
            f"the embedding function returned no vector: {error}; nothing was searched.", code="not_a_vector"
        ) from error
    if not all(map(math.isfinite, numbers)):
        raise Invalid(
            "the embedding function returned a vector with a number that is not finite; nothing was searched.",
            code="vector_not_finite",
        )
    return numbers


def _unit(vector: list[float]) -> bytes | None:
    length = math.sqrt(math.fsum(number * number for number in vector))
    return array("f", [number / length for number in vector]).tobytes() if length else None
