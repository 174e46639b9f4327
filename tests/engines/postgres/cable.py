"""A cable to the server that can be cut and mended: it stands for the network between two machines."""

from __future__ import annotations

import selectors
import shutil
import socket
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, unquote

__all__ = ["Cable", "cable_to"]

_PIECE = 65_536


class Cable:
    """Passes bytes between clients and the socket of a server, unless it is cut."""

    def __init__(self, server: Path, directory: Path) -> None:
        """Listen in `directory`, under the name that clients expect."""
        self._server, self.directory = server, directory
        self._is_cut, self._is_over = False, False
        self._lock, self._ends = threading.Lock(), list[socket.socket]()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(directory / server.name))
        self._listening.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End every session without a word, and let none begin."""
        with self._lock:
            self._is_cut = True
            for end in self._ends:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Let sessions begin again."""
        self._is_cut = False

    def close(self) -> None:
        """End it for good."""
        self._is_over = True
        self.cut()
        self._listening.close()

    def _accept(self) -> None:
        while not self._is_over:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self._is_cut:
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(str(self._server))
            except OSError:
                client.close()
                server.close()
                continue
            with self._lock:
                self._ends += client, server
            threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with client, server, selectors.DefaultSelector() as ready:
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            with suppress(OSError):
                while True:
                    for key, _ in ready.select():
                        piece = key.fileobj.recv(_PIECE)  # type: ignore[union-attr]
                        if not piece or self._is_cut:
                            return
                        key.data.sendall(piece)


@contextmanager
def cable_to(url: str) -> Generator[tuple[Cable, str]]:
    """A cable to the server of that address, and the address of its other end."""
    host = unquote(url.partition("host=")[2].partition("&")[0])
    port = url.partition("port=")[2].partition("&")[0] or "5432"
    directory = Path(tempfile.mkdtemp(prefix="perdure-cable-"))
    cable = Cable(Path(host) / f".s.PGSQL.{port}", directory)
    try:
        yield cable, url.replace(quote(host, safe=""), quote(str(directory), safe=""))
    finally:
        cable.close()
        shutil.rmtree(directory, ignore_errors=True)
