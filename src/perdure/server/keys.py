"""The server's own thread: the keys that clients present, and the record of what they did with them.

Keys are values in the state of that thread, so every key that was ever added or removed is in its history, and what is
stored is the hash of a key.  Each request that changes something is recorded there: who, when, and what was asked;
requests that come together share a commit.  Both are verified like any other thread.  The server lets no client write to this thread, and only an admin read it.
"""

from __future__ import annotations

import logging
import re
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any

import msgspec

from perdure.engines.loops import Attempts
from perdure.errors import Conflict, Invalid, NotFound, PerdureError, StaleHead
from perdure.model.canonical import prepared
from perdure.server.access import SERVER, Access, Role, check_roles
from perdure.store.store import Store
from perdure.store.thread import Thread

__all__ = ["SERVER", "Audit", "AuditEntry", "Key", "Keys", "QueuedEntry", "key_hash"]

_PREFIX = "pk_"
_PATH = "/keys/"
_ENTRIES = "/requests.json"
_CURSOR_SECRET = "/cursor-secret.json"
_REASON = "request"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}\Z")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}\Z")
_log = logging.getLogger("perdure.server")
_FRESH_SECONDS = 1.0  # a key that was removed is refused after at most this time


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is stored; None as a limit: there is none."""

    name: str
    hash: str  # SHA-256 of the key, which has 256 random bits
    roles: tuple[Role, ...]
    agents: tuple[str, ...] | None = None
    owners: tuple[str, ...] | None = None
    threads: tuple[str, ...] | None = None
    person_header: str | None = (
        None  # of a proxy: the header that names the person who asks; None: the key is a person's
    )

    def access(self, person: str | None) -> Access:
        """Return what the key may do; `person` is the name that a proxy vouches for, None: the key's own name."""
        return Access(
            name=person or self.name,
            roles=self.roles,
            agents=self.agents,
            owners=self.owners,
            threads=self.threads,
        )


class Keys:
    """The keys of one store."""

    def __init__(self, store: Store) -> None:
        """Read and write the keys of `store`."""
        self._store = store
        self._lock = threading.Lock()
        self._read: tuple[dict[str, Key], float] = {}, float("-inf")  # by hash, and when
        self._cursor_secret: bytes | None = None  # once it is needed

    def add(
        self,
        name: str,
        roles: Sequence[str],
        *,
        agents: Sequence[str] | None = None,
        owners: Sequence[str] | None = None,
        threads: Sequence[str] | None = None,
        person_header: str | None = None,
        by: str | None = None,
    ) -> str:
        """Make a key and return it; only its hash is stored.  Raises `Conflict` if there is a key of that name."""
        if not _NAME.match(name):
            raise Invalid(
                f"{name!r} is no name for a key: letters, digits and . _ @ + - are allowed; nothing was added.",
                code="key_name_invalid",
                name=name,
            )
        if person_header is not None and not _HEADER.match(person_header):
            raise Invalid(
                f"{person_header!r} is no name of a header; nothing was added.", code="header_invalid"
            )
        secret = _PREFIX + secrets.token_urlsafe(32)
        key = Key(
            name=name,
            hash=key_hash(secret),
            roles=check_roles(roles),
            agents=_limit(agents),
            owners=_limit(owners),
            threads=_limit(threads),
            person_header=person_header,
        )
        thread = server_thread(self._store)
        with thread.change(f"add key {name}", author=by) as change:
            if change.get(_path(name), default=None) is not None:
                raise Conflict(
                    f"there is a key '{name}'; nothing was added.",
                    code="key_exists",
                    advice="Remove it first, or choose another name.",
                    name=name,
                )
            change.put(_path(name), _json(key))
        return secret

    def ls(self) -> list[Key]:
        """Read all keys, by name."""
        try:
            values = self._store.thread(SERVER).values(_PATH)
        except NotFound:
            return []
        return [msgspec.convert(value, prepared(Key)) for value in values.values()]

    def rm(self, name: str, *, by: str | None = None) -> None:
        """Remove a key; it is refused within a second.  Raises `NotFound` if there is none of that name."""
        if name not in {key.name for key in self.ls()}:
            raise NotFound(f"there is no key '{name}'; nothing was removed.", code="key_not_found", name=name)
        with self._store.thread(SERVER).change(f"remove key {name}", author=by) as change:
            change.delete(_path(name))

    def find(self, secret: str) -> Key | None:
        """Return the key with that secret, as it was at most a second ago; None if there is none."""
        with self._lock:
            known = self.recent()
            if known is None:
                read_at = time.monotonic()
                known = {key.hash: key for key in self.ls()}
                self._read = known, read_at
            return known.get(key_hash(secret))

    def cursor_secret(self) -> bytes:
        """Return the secret that seals cursors, the same for all servers of the store; it is made when it is first needed.

        A store that cannot be written to has one for each process.
        """
        with self._lock:
            if self._cursor_secret is None:
                made = secrets.token_hex(32)
                try:
                    made = self._shared_secret(made)
                except PerdureError:
                    _log.info(
                        "the store cannot be written to, so cursors of limited keys end with this process"
                    )
                self._cursor_secret = bytes.fromhex(made)
            return self._cursor_secret

    def _shared_secret(self, made: str) -> str:
        """Return the stored secret; `made` is stored if there is none."""
        thread = server_thread(self._store)
        attempts = Attempts(f"thread '{SERVER}'", "the secret of cursors was not made")
        while True:
            attempts.begin()
            with suppress(StaleHead), thread.change("make the secret of cursors") as change:
                found = change.get(_CURSOR_SECRET, default=None)
                if found is None:
                    change.put(_CURSOR_SECRET, made)
                return made if found is None else str(found)

    def recent(self) -> Mapping[str, Key] | None:
        """Return the keys by their hashes, as they were at most a second ago, without reading; None: `find` reads them."""
        known, read_at = self._read
        return known if time.monotonic() - read_at <= _FRESH_SECONDS else None


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One request that was to change something."""

    at: str
    by: str
    roles: tuple[str, ...]
    method: str
    path: str
    query: str
    op_id: str | None
    body: str  # the SHA-256 of its bytes
    client: str | None
    refused: str | None = None  # the code of the refusal; None: the request was let pass


class QueuedEntry:
    """An entry on its way to the disk."""

    woken: threading.Lock | None = None  # that the thread of the request waits on; None: it does not wait
    is_settled = False
    error: BaseException | None = None  # why it was not written

    def __init__(self, entry: AuditEntry) -> None:
        """Begin with an entry that no thread has written."""
        self.entry = entry


class Audit:
    """The record of what clients did.  Thread-safe.

    A request queues its entry as soon as it is read, and writes it on its own thread.  The thread that comes first
    writes all that are queued, so that requests that come together share a commit and none waits for the others.
    """

    def __init__(self, store: Store) -> None:
        """Write to the server's thread in `store`."""
        self._store = store
        self._thread: Thread | None = None  # once it is needed: a store that is only read has none
        self._lock = threading.Lock()
        self._queued: list[QueuedEntry] = []
        self._is_writing = False

    def queue(self, entry: AuditEntry) -> QueuedEntry:
        """Let the next commit have an entry; nothing is written yet."""
        queued = QueuedEntry(entry)
        with self._lock:
            self._queued.append(queued)
        return queued

    def write(self, queued: QueuedEntry) -> None:
        """Wait until an entry is durable, and write all that are queued if no other thread does.

        Raises what the write raised; then the entry may be absent.
        """
        with self._lock:
            if not queued.is_settled and self._is_writing:
                queued.woken = threading.Lock()
                queued.woken.acquire()
            self._is_writing = self._is_writing or not queued.is_settled
        if queued.woken is not None:
            queued.woken.acquire()  # until the entry is written, or it is the turn of this thread to write
        if not queued.is_settled:
            self._write_queued()
        if queued.error is not None:
            raise queued.error

    def _write_queued(self) -> None:
        """Write every entry that is queued, wake the threads that wait for them, and give one that came since its turn."""
        with self._lock:
            batch, self._queued = self._queued, []
        error: BaseException | None = None
        try:
            self._commit([each.entry for each in batch])
        except BaseException as failure:  # noqa: BLE001  # the thread of each entry raises it
            error = failure
        with self._lock:
            for each in batch:
                each.error, each.is_settled = error, True
            # An entry without a waiting thread has a request that no worker has taken yet, which may last.
            next_writer = next((each for each in self._queued if each.woken is not None), None)
            self._is_writing = next_writer is not None
        for each in (*batch, *([] if next_writer is None else [next_writer])):
            if each.woken is not None:
                each.woken.release()

    def _commit(self, entries: Sequence[AuditEntry]) -> None:
        thread = self._thread = self._thread or server_thread(self._store)
        attempts = Attempts(f"thread '{SERVER}'", "the request was not recorded")
        content = _json(entries)
        while True:
            attempts.begin()
            with suppress(StaleHead), thread.change(_REASON) as change:
                change.put(_ENTRIES, content)
                return

    def read(self, limit: int) -> list[dict[str, Any]]:
        """Read the last entries, newest first."""
        thread = server_thread(self._store)
        found: list[dict[str, Any]] = []
        for commit in thread.log(limit=limit):
            if commit.reason == _REASON:
                found += reversed(thread.at(commit).get(_ENTRIES))
        return found[:limit]


def server_thread(store: Store) -> Thread:
    """Open the server's own thread, which is begun if need be."""
    return store.thread(SERVER, agent=SERVER)


def _json(value: msgspec.Struct | Sequence[msgspec.Struct]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def key_hash(secret: str) -> str:
    """Return what is stored of a key."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _path(name: str) -> str:
    return f"{_PATH}{name}.json"


def _limit(names: Sequence[str] | None) -> tuple[str, ...] | None:
    if names is not None and not names:
        raise Invalid(
            "a limit names at least one; nothing was added.",
            code="limit_empty",
            advice="Leave it out for a key without that limit.",
        )
    return None if names is None else tuple(dict.fromkeys(names))
