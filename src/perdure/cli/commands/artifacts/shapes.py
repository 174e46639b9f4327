"""Artifacts as answers, and how a person names one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from msgspec import UNSET

from perdure.errors import Invalid, NotFound
from perdure.history.artifact_names import is_referable
from perdure.model.names import COMPARED_MAX, did_you_mean
from perdure.store.artifacts import Artifacts

__all__ = ["digest_of"]

_DIGEST_LENGTH = 64
_SCHEME = "artifact://sha256/"


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
