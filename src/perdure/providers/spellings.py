"""Spellings: other names under which a model of the catalog goes.

A server may add a region, a date, a variant or its maker to a model's name.  What is left
without them is often a name that is known: `us.amazon.nova-pro-v1:0` is `amazon.nova-pro-v1:0`,
`gpt-5.4-2026-03-05` is `gpt-5.4`, `anthropic/claude-haiku-4.5` is Anthropic's `claude-haiku-4-5`.
A name without its version is that of a family: `claude-sonnet-5-5` is one of `claude-sonnet`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["elsewhere", "family_of", "spellings"]

_REGION = re.compile(r"^(?:us-gov|us|eu|apac|global|jp|au|in|ca|sa)\.")
_PROFILE = re.compile(r"^arn:[^/]*/")
_VARIANT = re.compile(r":(?:free|thinking|nitro|floor|latest|cloud|groq)$")
_DATE = re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d|\d{4}|00\d|latest|preview|exp)(?:-v\d+(?::\d+)?)?$")
_PREVIEW = re.compile(r"-(?:preview|exp)(?:-[\d-]+)?$")
_SIZE = re.compile(r":[\w.-]+$")
# A word of a name that says which model of a family it is.
_VERSION = re.compile(r"v?\d+(?:\.\d+)*|latest|preview|exp")
_FIELDS_MAX = 8  # a name is cut so often at most


def spellings(name: str) -> Iterator[str]:
    """`name`, and what is left of it without region, variant, date and size, each once."""
    told: set[str] = set()
    for bare in (name, _PROFILE.sub("", name)):
        for each in _cut(_REGION.sub("", bare)):
            if each and each not in told:
                told.add(each)
                yield each


def elsewhere(name: str) -> Iterator[str]:
    """Names under which the model's maker may have it: without the folders before it, dots as dashes."""
    last = name.rpartition("/")[2]
    for each in spellings(last.lower()):
        yield each
        yield each.replace(".", "-")


def family_of(name: str) -> str:
    """The name of a model without what says which of its family it is."""
    return "-".join(word for word in name.split("-") if not _VERSION.fullmatch(word))


def _cut(name: str) -> Iterator[str]:
    yield name
    for _ in range(_FIELDS_MAX):
        shorter = _shorter(name)
        if shorter == name:
            return
        name = shorter
        yield name


def _shorter(name: str) -> str:
    for pattern in (_VARIANT, _DATE, _PREVIEW, _SIZE):
        if pattern.search(name):
            return pattern.sub("", name)
    return name
