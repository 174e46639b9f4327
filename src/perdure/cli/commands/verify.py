"""`perdure verify`."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated

import msgspec
from cyclopts import Parameter

from perdure import errors
from perdure.cli.input.stores import engine
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.progress import checking
from perdure.cli.output.verified import Verified
from perdure.engines import loops
from perdure.engines.contract import Engine
from perdure.history.space import THREADS
from perdure.history.verify.report import VerifiedPoint, decode_points, encode_points
from perdure.ledger import verify as verification
from perdure.model.names import shown_address
from perdure.store.copy import label_or_name

__all__ = ["verify"]


def verify(
    *,
    space: Annotated[
        list[str] | None,
        Parameter(
            metavar="NAME",
            negative=(),
            show_default=False,
            help="Only this thread, or agent:NAME, or memory:WHO; may be given several times",
        ),
    ] = None,
    since: Annotated[
        str | None,
        Parameter(
            metavar="FILE",
            show_default=False,
            help="Only what was written since the check that saved this file; older rows are not read",
        ),
    ] = None,
    save: Annotated[
        str | None,
        Parameter(
            metavar="FILE",
            show_default=False,
            help="Note in this file how far the store is sound, for --since; keep it away from the store",
        ),
    ] = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Verified:
    """Verify everything that is stored

    Every byte is hashed again, every state is computed again from the one before it, and every
    head is compared with its last move. What programs write during the check is left to the next one.
    Nothing is changed. Exits with 6 if anything is wrong.

    With --since the history must still be the one that was verified then, and only what came later
    is read; cells, heads and the records of calls are checked in any case. An edit of an older row is found
    when it is read, or without --since.
    """
    points = None if since is None else _points(since)
    if save is not None:
        _check_replaceable(save)
    with engine(everywhere) as opened, checking("Checking", quiet=everywhere.json) as progress:
        wanted = None if space is None else [_space(opened, each) for each in space]
        report = verification.verify(opened, spaces=wanted, since=points, progress=progress)
    address = shown_address(everywhere.store)
    report.log(address)
    if save is not None:
        _save(save, {**(points or {}), **report.points})
    verified = Verified.of(address, report)
    return msgspec.structs.replace(verified, only=space or [])


def _space(engine: Engine, name: str) -> str:
    """Return the space that is meant: the one of that name, or of the thread of that id; raises `NotFound`."""
    if engine.standing(name) > 0:
        return name
    threads = (each for each in loops.spaces(engine) if each.startswith(THREADS))
    found = next((each for each in threads if label_or_name(engine, each) == name), None)
    if found is None:
        raise errors.NotFound(
            f"this store has no thread, agent or memory '{name}'; nothing was checked.",
            code="space_not_found",
            advice="Leave --space out to check all.",
            space=name,
        )
    return found


def _points(file: str) -> dict[str, VerifiedPoint]:
    try:
        return decode_points(Path(file).read_bytes())
    except OSError as error:
        raise errors.NotFound(
            f"{file} cannot be read ({error.strerror}); nothing was checked.",
            code="file_not_found",
            advice="Make it with `perdure verify --save FILE`.",
            file=file,
        ) from error


def _check_replaceable(file: str) -> None:
    """Raise `Invalid` if `file` is there and is not a file of points: it may be a store."""
    path = Path(file)
    if not path.is_file():
        return
    try:
        decode_points(path.read_bytes())
    except (errors.Corrupt, OSError) as error:
        raise errors.Invalid(
            f"{file} is there, and is not a file that `perdure verify --save` wrote; nothing was checked or saved.",
            code="file_exists",
            advice="Choose another name.",
            file=file,
        ) from error


def _save(file: str, points: dict[str, VerifiedPoint]) -> None:
    """Write the file whole or not at all: a check that is interrupted leaves the earlier one."""
    path = Path(file)
    try:
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as new:
            new.write(encode_points(points))
            new.flush()
            os.fsync(new.fileno())
        Path(new.name).replace(path)
    except OSError as error:
        raise errors.Unavailable(
            f"{file} cannot be written ({error.strerror}); the store was checked, and nothing was saved.",
            code="file_not_written",
            file=file,
        ) from error
