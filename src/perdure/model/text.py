"""Words for a model: text that is whole, errors in one line, and long text cut in the middle.

What others wrote can hold lone surrogates, be endless, or raise when it is asked to show
itself.  Here it becomes text that can be sent; what it was stays where it is kept raw.
"""

from __future__ import annotations

from perdure.errors import PerdureError

__all__ = [
    "SHOWN_BYTES",
    "WHY_CHARACTERS_MAX",
    "cut",
    "described",
    "said_by",
    "shortened",
    "shown",
    "told_by",
    "well_formed",
]

WHY_CHARACTERS_MAX = 2_000  # of a reason in a record
SHOWN_BYTES = 16 * 1024  # of one result or error that a model is shown


def well_formed(text: str) -> str:
    """`text` with U+FFFD in the place of lone surrogates; halves that stand together are joined."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def shortened(text: str, characters_max: int = WHY_CHARACTERS_MAX) -> str:
    """`text` if it is short enough, else its beginning."""
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"


def shown(text: str) -> str:
    """`text` if a model can be shown all of it, else its head and tail, and between them how much is left out."""
    parts = cut(text, SHOWN_BYTES)
    if parts is None:
        return text
    head, tail = parts
    left = len(text) - len(head) - len(tail)
    return f"{head}\n[… {left:,} of {len(text):,} characters are left out here, and were not kept …]\n{tail}"


def said_by(error: BaseException, *, advice: bool = True) -> str:
    """An error in one line, for a record: what it is and what it says, if wanted without what it advises."""
    return shortened(told_by(error, advice=advice))


def told_by(error: BaseException, *, advice: bool = True) -> str:
    """An error in words: what it is and all that it says, if wanted without what it advises."""
    kind = type(error).__name__
    try:
        said = error.message if isinstance(error, PerdureError) and not advice else str(error)
    except Exception as failure:  # noqa: BLE001  # others' code: an error that cannot say what it is
        said = f"(it cannot be shown: {type(failure).__name__})"
    notes = [each for each in getattr(error, "__notes__", ()) if isinstance(each, str)]
    told = f"{kind}: {said}" if said else kind
    return well_formed("; ".join([told.rstrip(".") if notes else told, *notes]))


def described(value: object) -> str:
    """The `repr` of a value, or what there is to say where it has none."""
    try:
        return repr(value)
    except Exception as failure:  # noqa: BLE001  # others' code, and the result must not be lost for it
        if isinstance(value, int):  # of more digits than Python writes out
            return hex(value)
        return f"<{type(value).__qualname__} whose repr raised {type(failure).__name__}>"


def cut(text: str, bytes_max: int) -> tuple[str, str] | None:
    """The head and the tail of `text`, together at most `bytes_max` of UTF-8; None if all of it fits.

    Two thirds are head.  No character is cut in two.
    """
    if len(text) * 4 <= bytes_max:
        return None
    body = text.encode("utf-8", "replace")
    if len(body) <= bytes_max:
        return None
    tail = bytes_max // 3
    head = body[: bytes_max - tail].decode("utf-8", "ignore")
    return head, body[len(body) - tail :].decode("utf-8", "ignore") if tail else ""
