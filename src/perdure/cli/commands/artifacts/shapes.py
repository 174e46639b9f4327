"""Artifacts as answers, and how a person names one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec
from msgspec import UNSET

from perdure.cli.output.formatting import stamp
from perdure.errors import Invalid, NotFound
from perdure.history.artifact_names import is_referable
from perdure.history.artifacts import Listed
from perdure.model.names import COMPARED_MAX, did_you_mean
from perdure.store.artifacts import Artifacts

__all__ = ["ArtifactShape", "digest_of"]

_DIGEST_LENGTH = 64
_SCHEME = "artifact://sha256/"


class ArtifactShape(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an artifact without reading its content."""

    digest: str
    reference: str
    name: str | None
    media_type: str
    size: int
    sha256: str  # of the plain content, as sha256sum prints it
    at: str | None  # when it was listed; null: it never was
    named: str | None = None  # artifact://<collection>/<name>, where it has such a name
    call: str | None = None  # the call whose result it is
    run: str | None = None
    commit: str | None = None  # that named it, or has the call

    @classmethod
    def of(cls, listed: Listed) -> ArtifactShape:
        """Return the artifact in the shape of --json."""
        return cls(
            digest=listed.digest,
            reference=_SCHEME + listed.digest,
            name=listed.name,
            media_type=listed.media_type,
            size=listed.size,
            sha256=listed.sha256,
            at=None if listed.at is None else stamp(listed.at),
            named=f"artifact://{listed.name}" if listed.name and listed.commit else None,
            call=listed.call,
            run=listed.run,
            commit=listed.commit,
        )


def digest_of(artifacts: Artifacts, given: str, *, at: str | None = None) -> str:
    """Return the digest of the artifact that a person means: by digest, its beginning, reference or name.

    A name of the form collection/name is looked up as of the moment `at`, None being now.  Raises `NotFound` if it
    fits none that is listed, `Invalid` if it fits several.
    """
    if given.startswith("artifact://") and not given.startswith(_SCHEME):
        return artifacts.resolve(given, at=UNSET if at is None else at)
    if is_referable(given) and (found := artifacts.names(at=UNSET if at is None else at).get(given)):
        return found
    wanted = given.removeprefix(_SCHEME)
    if len(wanted) == _DIGEST_LENGTH:
        return wanted
    fits = (each for each in artifacts.ls() if each.name == given or each.digest.startswith(wanted))
    found = [each.digest for each in islice(fits, 2)]
    if not found:
        hint = did_you_mean(given, _names(artifacts))
        raise NotFound(
            f"there is no artifact '{given}'; nothing was read. {hint}".rstrip(),
            code="artifact_not_found",
            advice="See `perdure artifacts ls`.",
            artifact=given,
        )
    if len(found) > 1:
        raise Invalid(
            f"'{given}' fits more than one artifact; nothing was read.",
            code="ambiguous_name",
            advice="Give more digits.",
            name=given,
        )
    return found[0]


def _names(artifacts: Artifacts) -> Iterator[str]:
    for each in islice(artifacts.ls(), COMPARED_MAX // 2):
        yield from (name for name in (each.name, each.digest) if name)
