"""Lists over the threads of a store: what one request looks at, and the cursors that lead on.

The directory of a store is sorted by id, and has no order by owner or agent.  So a list for a credential that may see few
threads passes over many: a request looks at `LOOKED_AT_MAX` of them at most, those that it may not see included, and its
cursor leads on from the last one.

That one may be a thread which the credential may not see.  So the cursors of a credential with limits are sealed: they
are encrypted and bound to the credential and its limits, all have the same length, and a text that is no sealed cursor
is refused.  A client that could choose where a list begins would learn from whether it has another page where threads
are that it may not see.  What it does learn is that there are many of them.

The newest first is an order that only a list of everything can have: such a list is refused for a credential that would
have to look at more.  Its cursor is the time and the id of a thread that the credential has seen, and needs no seal.
"""

from __future__ import annotations

import base64
import hmac
from binascii import Error as Base64Error
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal

import msgspec

from perdure.errors import Corrupt, Invalid, NotFound
from perdure.model.names import ID_BYTES_MAX
from perdure.model.run import RunRecord
from perdure.server.access import Access
from perdure.server.limited import LimitedThread, limited
from perdure.shapes.imported import newest_at
from perdure.store.thread import Thread

if TYPE_CHECKING:
    from perdure.server.routing import HttpCall

__all__ = ["LOOKED_AT_MAX", "ThreadList", "seal_cursor", "unseal_cursor"]

LOOKED_AT_MAX = 10_000
_DIGITS_MAX = 18
_TAG_BYTES = 16
_LENGTH_BYTES = 2
_PLAIN_BYTES = _LENGTH_BYTES + ID_BYTES_MAX


class ThreadList:
    """The threads that a credential may see, by id, after a cursor."""

    def __init__(
        self,
        call: HttpCall,
        *,
        owner: str | None = None,
        agent: str | None = None,
        state: Literal["running", "waiting"] | None = None,
        after: str | None = None,
        newest: bool = False,
    ) -> None:
        """List threads of an owner or agent, or with a run in a state; None: of any, and from the first.

        With `newest` those come first whose main was committed to, or said elsewhere, last; else they are sorted by id.
        """
        self._call, self._owner, self._agent, self._state = call, owner, agent, state
        self._is_newest, self._places = newest, dict[str, tuple[int, str]]()
        self._before = _place(after) if newest and after is not None else None
        self._after = None if newest else after
        if self._after is not None and call.access.is_limited:
            self._after = unseal_cursor(call.server.cursor_secret(), call.access, self._after)
        self._last: str | None = None  # that was looked at, if there may be others after it

    def __iter__(self) -> Iterator[Thread]:
        """Yield the threads; `next` says whether all were looked at.  Raises `Invalid` if too many are to be sorted."""
        return iter(self._newest_first()) if self._is_newest else self._by_id()

    def all(self, *, advice: str = "List them by id, page by page.") -> list[Thread]:
        """Return the threads; raises `Invalid`, with this advice, if that would be to look at too many."""
        found = list(self._by_id())
        if self._last is not None:
            raise Invalid(
                f"this list would have to look at more than {LOOKED_AT_MAX:,} threads; nothing was read.",
                code="too_many_threads",
                advice=advice,
                threads_max=LOOKED_AT_MAX,
            )
        return found

    def _newest_first(self) -> Iterator[Thread]:
        threads = {each.id: each for each in self.all()}
        times = self._call.server.commit_times
        if len(times) > 2 * LOOKED_AT_MAX:
            times.clear()
        self._places = {id: (_changed_at(each, times), id) for id, each in threads.items()}
        for place in sorted(self._places.values(), reverse=True):
            if self._before is None or place < self._before:
                yield threads[place[1]]

    def _by_id(self) -> Iterator[Thread]:
        for number, thread in enumerate(self._candidates()):
            if number == LOOKED_AT_MAX:
                return
            self._last = thread.id
            if (
                self._owner in (None, thread.owner)
                and self._agent in (None, thread.agent)
                and self._call.access.lists_thread(thread, agent=self._agent)
            ):
                seen = limited(thread, self._call.access)
                if self._state is None or self._has_seen_run(seen):
                    yield seen
        self._last = None

    @property
    def next(self) -> str | None:
        """The cursor after the threads that were looked at; None: those were all."""
        return None if self._last is None else self.cursor(self._last)

    def cursor(self, id: str) -> str:
        """Return the cursor after a thread."""
        if self._is_newest:
            return "{}.{}".format(*self._places[id])
        access = self._call.access
        return seal_cursor(self._call.server.cursor_secret(), access, id) if access.is_limited else id

    def _candidates(self) -> Iterable[Thread]:
        """Return what there is to look at, sorted by id: named threads, those with an open run, or all of the store."""
        store, named = self._call.store, self._call.access.threads
        if self._state is not None:
            self._runs: dict[str, list[RunRecord]] = {}
            for id, record in store.open_runs():
                if record.state == self._state:
                    self._runs.setdefault(id, []).append(record)
            named = tuple(self._runs)
        return store.threads(after=self._after) if named is None else self._opened(named)

    def _opened(self, ids: Iterable[str]) -> Iterator[Thread]:
        for id in sorted(set(ids)):
            if self._after is None or id > self._after:
                with suppress(NotFound):  # it was removed, or the key names it before it is begun
                    yield self._call.store.thread(id)

    def _has_seen_run(self, thread: Thread) -> bool:
        runs = self._runs[thread.id]
        return not isinstance(thread, LimitedThread) or any(map(thread.sight.sees_run, runs))


def _changed_at(thread: Thread, times: dict[str, int]) -> int:
    """Return when a thread was said or written last; of one without commits, or that cannot be read, when it began.

    `times` are those of commits that were read before: a commit never changes.
    """
    try:
        seen = thread.at()
        if seen.digest is None:
            return thread.begun_at
        at = times.get(seen.digest)
        if at is None:
            at = times[seen.digest] = newest_at(seen, next(iter(seen.log(limit=1))), thread.begun_at)
        return at
    except (Corrupt, NotFound):
        return thread.begun_at


def _place(cursor: str) -> tuple[int, str]:
    at, _, id = cursor.partition(".")
    if not at.isdecimal() or len(at) > _DIGITS_MAX:
        raise Invalid(
            f"{cursor!r} is no cursor of this list; nothing was read.", code="cursor_invalid", cursor=cursor
        )
    return int(at), id


# ---- sealed cursors


def seal_cursor(secret: bytes, access: Access, id: str) -> str:
    """Return a cursor from which only `unseal_cursor` reads the id, for the same credential with the same limits."""
    text = id.encode()
    plain = len(text).to_bytes(_LENGTH_BYTES, "big") + text.ljust(ID_BYTES_MAX, b"\0")
    tag = _tag(secret, access, plain)
    return _spelled(tag + _covered(secret, tag, plain))


def unseal_cursor(secret: bytes, access: Access, cursor: str) -> str:
    """Return the id in a sealed cursor; raises `Invalid` if it was not sealed for this credential."""
    try:
        sealed = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except (Base64Error, ValueError):
        sealed = b""
    tag, covered = sealed[:_TAG_BYTES], sealed[_TAG_BYTES:]
    # Base64 has bits to spare at its end: a cursor with others there is not the one that was given.
    is_whole = len(covered) == _PLAIN_BYTES and _spelled(sealed) == cursor
    plain = _covered(secret, tag, covered) if is_whole else b""
    if not plain or not hmac.compare_digest(tag, _tag(secret, access, plain)):
        raise Invalid(
            "the cursor is none that this credential was given; nothing was read.",
            code="cursor_invalid",
            advice="Begin the list again, without `after`.",
        )
    length = int.from_bytes(plain[:_LENGTH_BYTES], "big")
    return plain[_LENGTH_BYTES : _LENGTH_BYTES + length].decode()


def _spelled(sealed: bytes) -> str:
    return base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def _tag(secret: bytes, access: Access, plain: bytes) -> bytes:
    """Return what authenticates a cursor, and makes its cover one of its own: it differs for each credential and id."""
    bound = msgspec.json.encode((access.name, access.agents, access.owners, access.threads))
    return blake2b(
        bound + b"\0" + plain, digest_size=_TAG_BYTES, key=secret, person=b"perdure cursor t"
    ).digest()


def _covered(secret: bytes, tag: bytes, text: bytes) -> bytes:
    """Return a text of `_PLAIN_BYTES` with the cover of its tag added, or taken away."""
    blocks = (
        blake2b(tag + number.to_bytes(2, "big"), key=secret, person=b"perdure cursor c").digest()
        for number in range(-(-_PLAIN_BYTES // 64))
    )
    return bytes(a ^ b for a, b in zip(text, b"".join(blocks), strict=False))
