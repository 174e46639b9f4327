"""Reading cells: from the text that a cell holds to the record that it means."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from perdure.engines.contract import Cell
from perdure.errors import Corrupt

__all__ = ["read"]

_T = TypeVar("_T")


def read(cell: Cell, decoder: msgspec.json.Decoder[_T]) -> _T:
    """What the cell says; raises `Corrupt`, naming it, if that cannot be read."""
    try:
        return decoder.decode(cell.value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(
            f"cell '{cell.name}' cannot be read: {error}. Run `perdure verify`.", cell=cell.name
        ) from error
