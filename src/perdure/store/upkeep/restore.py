"""Makes a store from a backup, after the backup was checked, and never in place of anything newer.

The backup is copied into a new file beside the target (see `store.copy`), which takes the target's place when it is
complete.  That last step is made under the write lock of the target: no process writes to it or opens it for writing
between the moment it is compared with the backup and the moment it has its other name.  A store that has anything that
the backup lacks is left as it is, unless the caller asks for it too.  Any other is set aside under another name, and so
is a write-ahead log whose store is gone, which SQLite would else replay into the new file.

The store that is set aside has both names until the new file takes the place of one: a process that opens the path finds
the old store, a file with two names, which it refuses, or the new store, and never nothing, where it would make an empty store.
A restore that was killed is run again and goes on with the same new file.  On a server there is no file to replace:
the copy goes into the empty store itself, and refuses any other.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from glob import escape
from pathlib import Path

import msgspec

from perdure.engines import loops, registry
from perdure.engines.contract import Engine
from perdure.engines.replays import lacking
from perdure.errors import Conflict, Corrupt, Invalid, NotFound
from perdure.history.space import AGENTS, STORE, THREADS, words_for
from perdure.history.verify import Progress, VerifyReport
from perdure.ledger import held, verify
from perdure.ledger.held import COPIES
from perdure.model import canonical
from perdure.model.digest import Kind, digest_of
from perdure.model.memory import MEMORY
from perdure.model.names import shown_address
from perdure.store.copy import (
    CopyProgress,
    CopyReport,
    copy,
    label_or_name,
    onto_itself,
    origin_of,
    remove_if_disk_full,
    space_of,
)
from perdure.store.plumbing import directory
from perdure.store.upkeep.selection import Selection

__all__ = ["RestoreReport", "restore"]

_SHOWN = 3  # names of a longer list
_FILES = ("", "-wal", "-shm")  # a store of SQLite, and the files without which it is not whole
_BESIDE = ("-lock", "-closed")  # what openings of a store leave beside it
_ASIDE = ".set-aside-"
_MAGIC = b"SQLite format 3\0"


class RestoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore has done."""

    copy: CopyReport  # from the backup into the store
    backup: VerifyReport  # the check of the backup
    set_aside: tuple[str, ...]  # files that were in the way, under their new names
    newer: int = 0  # writes in them that can be read and that the backup lacks


class _Present(msgspec.Struct, frozen=True, kw_only=True):
    """What is at the target."""

    what: str | None = None  # in words; None: it has nothing to lose
    is_whole: bool = False  # it is a store that can be read as a whole
    newer: int = 0  # writes that can be read and that the backup lacks


def restore(
    backup: str,
    target: str,
    *,
    replace: bool,
    set_aside_newer: bool = False,
    clock: Callable[[], int],
    progress: CopyProgress | None = None,
    checked: Progress | None = None,
) -> RestoreReport:
    """Check a backup and make the store at `target` from it; its runs and approvals are held there.

    With `replace` a store that is damaged, or has nothing that the backup lacks, is set aside first, with
    `set_aside_newer` any store.  Raises `Corrupt` if the backup is damaged, `NotFound` if there is none, or no
    directory for the store, and `Conflict` if there is another store; all of them are as they were then.
    """
    check = partial(_check_present, backup=backup, replace=replace or set_aside_newer, newer=set_aside_newer)
    if registry.place_of(backup) == registry.place_of(target):
        raise onto_itself(backup)
    path = registry.file_of(target)
    path = None if path is None else path.resolve()
    source = _open_backup(backup)
    try:
        if path is not None:
            _check_directory(path)
        report = verify.verify(source, progress=checked)
        if not report.ok:
            raise _damaged(backup, report.faults[0].what, len(report.faults))
        if path is not None:
            _put_back(path)
            check(source, path)  # refuses now what the last step would refuse
        new = None if path is None else path.with_name(f"{path.name}.restoring-{_state_of(source)}")
        with remove_if_disk_full(new):
            into = registry.open_engine(
                target if new is None else str(new), read_only=False, create=True, durability="power_loss"
            )
            with closing(into):
                done = copy(
                    source,
                    into,
                    address=backup,
                    selection=Selection(),
                    kind="restore",
                    clock=clock,
                    progress=progress,
                )
        moved, lost = ([], 0) if path is None or new is None else _put_in_place(source, new, path, check)
    finally:
        source.close()
    return RestoreReport(copy=done, backup=report, set_aside=tuple(moved), newer=lost)


def _open_backup(backup: str) -> Engine:
    try:
        return registry.open_engine(backup, read_only=True, create=False, durability="power_loss")
    except (Corrupt, Invalid) as error:
        if isinstance(error, Invalid) and error.code != "foreign_file":
            raise
        if isinstance(error, Invalid) or not _is_sqlite(registry.file_of(backup)):
            raise Invalid(
                f"{shown_address(backup)} is no backup of a Perdure store, or its beginning is damaged; nothing was restored.",
                code="not_a_backup",
                advice="Name a file that `perdure backup` or `perdure copy` made.",
                backup=shown_address(backup),
            ) from error
        raise _damaged(backup, error.message, 1) from error
    except NotFound as error:
        raise NotFound(
            f"there is no backup at {shown_address(backup)}; nothing was restored.",
            code="backup_not_found",
            advice="Name the file of a backup.",
            backup=shown_address(backup),
        ) from error


def _is_sqlite(file: Path | None) -> bool:
    """True if a file begins as every file of SQLite; a backup whose first page is damaged is told apart by nothing."""
    if file is None:
        return True
    with file.open("rb") as opened:
        return opened.read(len(_MAGIC)) == _MAGIC


def _check_directory(path: Path) -> None:
    """Raise `NotFound` if the directory of a store that is to be made does not exist."""
    if not path.parent.is_dir():
        raise NotFound(
            f"the directory {path.parent} of the store does not exist; nothing was restored.",
            code="directory_not_found",
            advice="Create it first.",
            path=str(path),
        )


def _damaged(backup: str, what: str, faults: int) -> Corrupt:
    """Return the error for a backup that is not what was written."""
    address = shown_address(backup)
    return Corrupt(
        f"the backup {address} is damaged, and nothing was restored: {what.rstrip('.')}.",
        code="backup_damaged",
        advice=f"See all faults with `perdure verify --store {shlex.quote(address)}`, and restore another backup.",
        backup=address,
        faults=faults,
    )


def _state_of(source: Engine) -> str:
    """Name what a backup holds, so that only a restore of the same goes on with what an earlier one left."""
    standings = [[space, source.standing(space)] for space in loops.spaces(source)]
    return digest_of(Kind.BODY, canonical.encode([origin_of(source), standings]))[:16]


def _check_present(source: Engine, path: Path, *, backup: str, replace: bool, newer: bool) -> _Present:
    """Return what is at `path`; raise `Conflict` if it has to stay.

    A store without any write, or what an interrupted restore of the same backup left, may go without `replace`.  What can
    be read of a damaged store is compared too: what it has and the backup lacks is set aside only with `newer`.
    """
    try:
        found = _compare(source, path, backup, newer=newer) if path.exists() else _Present()
    except Corrupt:
        found = _Present(what="is damaged, or no store")
    except Invalid as error:
        if error.code != "foreign_file":
            raise
        found = _Present(what=f"is {error.facts['what']}")
    if found.what is not None and not replace:
        raise Conflict(
            f"{path} {found.what}; nothing was restored.",
            code="target_exists",
            advice="Restore it beside under another name, or set the present file aside with `--replace`.",
            store=str(path),
        )
    return found


def _compare(source: Engine, path: Path, backup: str, *, newer: bool) -> _Present:
    """Return what the file at `path` is; without `newer`, raise `Conflict` if it has what the backup lacks."""
    try:
        present = registry.open_engine(str(path), read_only=True, create=False, durability="power_loss")
    except NotFound:
        return _Present()  # an empty file
    try:
        if _is_unfinished(present, source) or not any(True for _ in loops.spaces(present)):
            return _Present(is_whole=True)
        # Records of restores do not count: the store that is made has records of its own, and holds what it holds.
        spaces = [space for space in loops.spaces(present) if space != COPIES]
        lost = {space: sum(1 for _ in lacking(present, source, space)) for space in spaces}
        lost = {space: writes for space, writes in lost.items() if writes}
        if lost and not newer:
            raise _target_newer(present, list(lost), str(path), backup)
        if "lost" in present.facts():
            return _Present(
                what="is damaged, and the backup has all that is left of it", newer=sum(lost.values())
            )
        return _Present(
            what="is a store, and the backup has all of it", is_whole=True, newer=sum(lost.values())
        )
    finally:
        present.close()


def _is_unfinished(present: Engine, source: Engine) -> bool:
    """True if an earlier restore of the same backup was interrupted."""
    origin = origin_of(source)
    return any(each.origin == origin and each.state != "complete" for each in held.arrivals(present))


def _target_newer(present: Engine, newer: Sequence[str], place: str, backup: str) -> Conflict:
    """Return the error for a store with writes that the backup lacks; it names the newer threads first."""
    ids: dict[str, str] = {}
    with suppress(Corrupt):  # a damaged directory
        ids = directory.ids_by_space(
            space_of(present, STORE), [each for each in newer if each.startswith(THREADS)]
        )
    named = [
        f"thread '{ids[space]}'" if space in ids else words_for(present, space)
        for space in sorted(newer, key=_by_interest)
    ]
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    return Conflict(
        f"{place} has writes that the backup lacks, in {', '.join(named[:_SHOWN])}{more}; nothing was restored.",
        code="target_newer",
        advice="Restore the backup beside it, under another name, and look at both; or set the store aside, whole, "
        "with `set_aside_newer`.",
        store=place,
        backup=shown_address(backup),
        spaces=tuple(newer),
        threads=tuple(
            ids.get(each) or label_or_name(present, each) for each in newer if each.startswith(THREADS)
        ),
    )


def _by_interest(space: str) -> int:
    """Return the order in which spaces are named: threads, memories, agents' maps, and what the store needs itself."""
    prefixes = (THREADS, MEMORY, AGENTS)
    return next((at for at, prefix in enumerate(prefixes) if space.startswith(prefix)), len(prefixes))


def _put_in_place(
    source: Engine, new: Path, path: Path, check: Callable[[Engine, Path], _Present]
) -> tuple[list[str], int]:
    """Let the complete file `new` be the store at `path`, and set aside what is there.

    Returns the names of that, and how many writes it has that the backup lacks.  Raises `Conflict`, having moved
    nothing, if it has to stay; the new file is removed then.
    """
    try:
        with registry.write_lock(path) as is_open:
            present = check(source, path)
            if present.is_whole and is_open():
                raise Conflict(
                    f"another process uses {path}; nothing was restored.",
                    code="target_in_use",
                    advice="Stop the programs that use it, and try again.",
                    store=str(path),
                )
            if path.exists():  # its owner may have opened it to a group
                new.chmod(stat.S_IMODE(path.stat().st_mode) & 0o666)
            moved = _set_aside(path)
            os.replace(new, path)
    except Conflict:
        for suffix in _FILES:
            Path(f"{new}{suffix}").unlink(missing_ok=True)
        raise
    finally:
        for suffix in _BESIDE:
            Path(f"{new}{suffix}").unlink(missing_ok=True)
        shutil.rmtree(f"{new}-held", ignore_errors=True)  # marks of a restore that was killed
    return moved, present.newer


def _set_aside(path: Path) -> list[str]:
    """Give the files of a store other names, under which they are a store too; return the names.

    The database keeps its own name as well, which the caller gives to another file.
    """
    base = f"{path}{_ASIDE}{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
    taken = 0
    while any(Path(f"{base}{suffix}").exists() for suffix in _FILES):
        taken += 1
        base = f"{base.partition('~')[0]}~{taken}"
    there = [suffix for suffix in _FILES if Path(f"{path}{suffix}").exists()]
    for suffix in there:
        try:
            os.link(f"{path}{suffix}", f"{base}{suffix}")
        except OSError:  # a file system without second names: for a moment there is no file at the path
            os.rename(f"{path}{suffix}", f"{base}{suffix}")
    for suffix in there[1:] if there[:1] == [""] else there:
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    return [f"{base}{suffix}" for suffix in there]


def _put_back(path: Path) -> None:
    """Let the store at `path` have one name again, if a restore was killed while it had two."""
    if not _second_names(path):
        return
    with registry.write_lock(path):
        for aside in _second_names(path):  # again: the restore may be under way, and end only now
            for suffix in _FILES[1:]:
                second, first = Path(f"{aside}{suffix}"), Path(f"{path}{suffix}")
                if second.exists() and first.exists() and second.samefile(first):
                    second.unlink()  # to replace a name by another one of the same file does nothing
                elif second.exists():
                    second.replace(first)
            aside.unlink()


def _second_names(path: Path) -> list[Path]:
    found = path.parent.glob(f"{escape(path.name)}{_ASIDE}*") if path.exists() else ()
    return [aside for aside in found if aside.samefile(path)]
