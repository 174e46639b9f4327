"""Resolves names of artifacts: `artifact://<collection>/<name>` names one digest as of a commit.

A name is an entry of the thread's own map, under a prefix that belongs to Perdure; so it is versioned,
forked and undone like the rest of the state, and looking one up costs as much as reading a path.
It is in the space of the thread: a name cannot refer to an artifact of another thread or agent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from perdure.errors import Invalid, NotFound
from perdure.history import ancestry
from perdure.history.changes.patch_builder import Ops
from perdure.history.space import Space
from perdure.history.tree import Entry
from perdure.model import artifact, canonical
from perdure.model.digest import Digest

__all__ = ["NAMES", "NamedArtifact", "is_referable", "known_names", "let_name", "resolve", "written_by"]

NAMES = "/__kernel/artifacts/"
RESERVED = ("sha256", "tool-results")  # collections that programs cannot use

_SCHEME = "artifact://"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}(/[A-Za-z0-9][A-Za-z0-9._-]{0,62}){1,7}\Z")


class NamedArtifact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The artifact that a name refers to, as the map stores it."""

    artifact: Digest
    media_type: str
    size: int
    sha256: str
    at: int  # µs since 1970, UTC
    depth: int  # of the commit that wrote it, on its line


_decoder = msgspec.json.Decoder(NamedArtifact)


def is_referable(name: str) -> bool:
    """True if a name is a collection and a name in it, so that a reference can name it."""
    return _NAME.match(name) is not None and name.partition("/")[0] not in RESERVED


def check_referable(name: str) -> str:
    """Return `name` if a reference can name it; raises `Invalid`."""
    if not is_referable(name):
        raise Invalid(
            f"{name[:100]!a} is not a name of the form collection/name (letters, digits, '.', '_', '-'; the collections "
            f"{' and '.join(RESERVED)} are taken); nothing was done.",
            code="artifact_name_invalid",
            name=name,
        )
    return name


def let_name(ops: Ops, name: str, named: NamedArtifact) -> None:
    """Set a name to an artifact, whatever it named before."""
    ops.put(NAMES + check_referable(name), canonical.decode(canonical.encode_struct(named)))


def resolve_name(space: Space, name: str, *, at: Digest | None) -> NamedArtifact:
    """Return the artifact that a name refers to as of a commit; raises `NotFound`."""
    entry = space.tree_at(at).get(NAMES + check_referable(name))
    if entry is None:
        where = f"at {at[:12]}" if at else "before the first commit"
        raise NotFound(
            f"there is no artifact {_SCHEME}{name} {where} in '{space.label}'; nothing was read.",
            code="artifact_not_found",
            name=name,
        )
    return _read(space, entry)


def known_names(space: Space, *, at: Digest | None) -> Iterator[tuple[str, NamedArtifact]]:
    """Yield all names as of a commit, sorted, with the artifacts that they refer to."""
    for entry in space.tree_at(at).entries(NAMES):
        yield entry.path.removeprefix(NAMES), _read(space, entry)


def written_by(space: Space, named: NamedArtifact, *, at: Digest | None) -> Digest | None:
    """Return the commit on the line of `at` that wrote a name."""
    if at is None:
        return None
    tip = ancestry.point(space, at)
    found = ancestry.ancestor(space, tip, named.depth) if named.depth <= tip.depth else None
    return found.digest if found else None


def resolve(space: Space, reference: str, *, at: Digest | None) -> Digest:
    """Return the digest that `artifact://sha256/<digest>` or `artifact://<collection>/<name>` names, as of a commit.

    Raises `NotFound` if this space has no such artifact, even if another space has it, and `Invalid` for a text
    that is no reference.
    """
    if not reference.startswith(_SCHEME):
        raise Invalid(
            f"{reference[:120]!r} is not a reference of the form {_SCHEME}…; nothing was looked up.",
            code="reference_invalid",
            reference=reference,
        )
    if reference.startswith(f"{_SCHEME}sha256/"):
        return artifact.parse_reference(reference)
    return resolve_name(space, reference.removeprefix(_SCHEME), at=at).artifact


def _read(space: Space, entry: Entry) -> NamedArtifact:
    return canonical.decode_struct(_decoder, space.body(entry.value), f"name of an artifact ({entry.path})")
