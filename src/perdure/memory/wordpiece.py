"""WordPiece: how a BERT model that knows no capitals cuts text into pieces of its vocabulary.

Text is cleaned, folded to lower case without accents and cut at spaces, punctuation and around every
Chinese character; each word is then cut into the longest pieces that the vocabulary has.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping

__all__ = ["WordPiece"]

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
    """Cuts text into the numbers of pieces."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        """Use the pieces of a vocabulary, each with its number."""
        self._numbers = vocabulary
        self._unknown = vocabulary["[UNK]"]
        self._first, self._last = vocabulary["[CLS]"], vocabulary["[SEP]"]

    def numbers(self, text: str, *, limit: int) -> list[int]:
        """The numbers of a text's pieces between the marks for beginning and end, at most `limit` in all."""
        found: list[int] = [self._first]
        for word in _words(text):
            found += self._pieces(word)
            if len(found) >= limit - 1:
                break
        return [*found[: limit - 1], self._last]

    def _pieces(self, word: str) -> list[int]:
        """The numbers of the longest pieces that make up a word; the unknown one if there are none."""
        if len(word) > _WORD_MAX:
            return [self._unknown]
        found: list[int] = []
        start = 0
        while start < len(word):
            before = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if before + word[start:end] in self._numbers), None)
            if end is None:
                return [self._unknown]
            found.append(self._numbers[before + word[start:end]])
            start = end
        return found


def _words(text: str) -> Iterator[str]:
    apart = "".join(_spaced(letter) for letter in text)
    folded = unicodedata.normalize("NFD", apart)
    # Letter by letter: the last sigma of a word is no other letter to the model.
    lowered = "".join([each.lower() for each in folded if unicodedata.category(each) != "Mn"])
    for word in lowered.split():
        yield from _split(word)


def _spaced(letter: str) -> str:
    """A letter as it is read: white space as a space, what cannot be seen as nothing, Chinese as a word of its own."""
    if letter in "\t\n\r":
        return " "
    category = unicodedata.category(letter)
    if letter in "\0\ufffd" or category in _UNSEEN:
        return ""
    if category == "Zs":
        return " "
    return f" {letter} " if any(low <= ord(letter) <= high for low, high in _CHINESE) else letter


def _split(word: str) -> Iterator[str]:
    """A word cut at its punctuation, each mark being a word."""
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
