"""A pooler in transaction mode with one connection to the server, and the real one where this machine has it.

The small one reads the protocol as far as a pooler must: it answers the start of a client itself, gives the server's
connection to the client that sends something, and takes it back when the server says that no transaction is open.
Nothing is reset in between, as with pgbouncer in transaction mode.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Lock, Thread

from tests.engines.postgres.server import Server

__all__ = ["PGBOUNCER", "bouncing", "pooling"]

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
_PROTOCOL = 196_608
_PLEASE_SECURE = (80_877_103, 80_877_104)  # requests for TLS and GSSAPI
_NOBODY = "nobody"


class _Stream:
    """Messages of one socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket, self._file = connection, connection.makefile("rb")

    def start(self) -> int:
        """Read what a client sends first; return what it asks for."""
        size, code = struct.unpack(">II", self._file.read(8))
        self._file.read(size - 8)
        return int(code)

    def message(self) -> bytes:
        """Read one message; empty at the end."""
        head = self._file.read(5)
        if len(head) < 5:
            return b""
        return head + self._file.read(struct.unpack(">I", head[1:])[0] - 4)

    def close(self) -> None:
        self._file.close()
        self.socket.close()


class _Pooler:
    """One connection to the server, shared by all clients, a transaction at a time."""

    def __init__(self, server: Server, place: Path, *, database: str, user: str) -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(f"{server.directory}/.s.PGSQL.5432")
        self._server = _Stream(connection)
        names = f"user\0{user}\0database\0{database}\0client_encoding\0UTF8\0\0".encode()
        connection.sendall(struct.pack(">II", 8 + len(names), _PROTOCOL) + names)
        self._greeting = b""
        while (message := self._server.message())[:1] != b"Z":
            assert message[:1] in b"RSK", message
            if message[:1] == b"K":  # the number of the session, which is not the client's
                message = b"K" + struct.pack(">III", 12, 1, 1)
            self._greeting += message
        self._greeting += message
        self._turn, self._clients = Lock(), list[socket.socket]()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(place))
        self._listener.listen(16)
        Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._clients.append(client)
                Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with closing(_Stream(client)) as stream, suppress(OSError):
            while stream.start() in _PLEASE_SECURE:
                client.sendall(b"N")
            client.sendall(self._greeting)
            while (message := stream.message())[:1] not in (b"", b"X"):
                with self._turn:
                    self._transaction(stream, message)

    def _transaction(self, client: _Stream, message: bytes) -> None:
        """Carry what the client sends to the server and back, until the server is in no transaction."""
        while True:
            self._server.socket.sendall(message)
            if message[:1] in b"QS":  # what the server answers at once
                while (answer := self._server.message())[:1] != b"Z":
                    client.socket.sendall(answer)
                client.socket.sendall(answer)
                if answer[5:] == b"I":
                    return
            message = client.message()

    def close(self) -> None:
        """End every connection."""
        for each in (self._listener, *self._clients):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._server.close()


@contextmanager
def pooling(server: Server, directory: Path, *, database: str, user: str) -> Generator[str]:
    """Return the address of a pooler that has one connection to a database."""
    with closing(_Pooler(server, directory / ".s.PGSQL.6432", database=database, user=user)):
        yield f"postgresql://{user}@/{database}?host={directory}&port=6432"


@contextmanager
def bouncing(server: Server, directory: Path, *, database: str, user: str) -> Generator[str]:
    """Return the address of a pgbouncer in transaction mode that has one connection to a database."""
    assert PGBOUNCER is not None
    users, settings = directory / "users", directory / "pgbouncer.ini"
    users.write_text(f'"{user}" ""\n', encoding="ascii")
    settings.write_text(
        f"[databases]\n{database} = host={server.directory} port=5432 user={user}\n[pgbouncer]\n"
        f"listen_addr =\nlisten_port = 6432\nunix_socket_dir = {directory}\nauth_type = trust\nauth_file = {users}\n"
        f"pool_mode = transaction\ndefault_pool_size = 1\nlogfile = {directory}/log\npidfile = {directory}/pid\n",
        encoding="utf-8",
    )
    is_root = os.geteuid() == 0
    if is_root:
        for path in (directory, users, settings):
            shutil.chown(path, _NOBODY)
    process = subprocess.Popen([PGBOUNCER, str(settings)], user=_NOBODY if is_root else None)
    try:
        while not _is_listening(directory / ".s.PGSQL.6432"):
            assert process.poll() is None
            time.sleep(0.02)
        yield f"postgresql://{user}@/{database}?host={directory}&port=6432"
    finally:
        process.terminate()
        process.wait(10)


def _is_listening(place: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(place)) == 0
