"""An application of one's own: streams are responses of FastAPI, uvicorn can exit, and the documented one loses no run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import perdure
from perdure import Agent
from perdure.testing import Script, say, use
from tests.docs.blocks import ROOT, blocks
from tests.server.client import WAIT_SECONDS

pytest.importorskip("fastapi")

_PROGRAM = """
from contextlib import asynccontextmanager

from fastapi import FastAPI
from perdure import Agent, aio
from perdure.server import events, streams
from perdure.testing import Script, say

assistant = Agent("assistant", backend=Script(say("Hello.")))


@asynccontextmanager
async def lifespan(application):
    async with aio.open("agents.db") as opened:
        application.state.store = opened
        yield


application = FastAPI(lifespan=lifespan)


@application.get("/run")
async def run():
    thread = await application.state.store.thread("chat", agent=assistant)
    return events(thread.stream("Hi", id="msg-1"))


@application.get("/follow")
async def follow():
    thread = await application.state.store.thread("chat", agent=assistant)
    return events(thread.follow(wait=True))
"""
# Streams look for the end of the server once, at their beginning, and not again.
_DEAF = _PROGRAM + "\nstreams._EXIT_SECONDS = 3600.0\n"


_WAITING = """
import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import perdure
from fastapi import FastAPI
from perdure import Agent, aio
from perdure.server import problem_handler
from perdure.testing import Script, say, use


@perdure.tool(effect="read_only")
async def look() -> str:
    if not Path("inside").exists():
        Path("inside").touch()
        await asyncio.sleep(600)
    return "seen"


assistant = Agent("assistant", backend=Script(use("look"), say("Done.")), tools=[look])


@asynccontextmanager
async def lifespan(application):
    async with aio.open("agents.db") as opened:
        application.state.store = opened
        yield


application = FastAPI(lifespan=lifespan)
application.add_exception_handler(perdure.errors.PerdureError, problem_handler)


@application.get("/run")
async def run():
    thread = await application.state.store.thread("chat", agent=assistant)
    result = await thread.run("Hi", id="msg-1")
    return {"status": result.status, "text": result.text}
"""


@contextmanager
def _application(
    directory: Path, program: str, grace: int | None = None
) -> Generator[tuple[subprocess.Popen[str], HTTPConnection]]:
    """An application under plain uvicorn, which waits so many seconds for open requests, and a connection to it."""
    (directory / "app.py").write_text(program)
    command = [sys.executable, "-m", "uvicorn", "app:application", "--port", "0", "--no-access-log"]
    command += [] if grace is None else ["--timeout-graceful-shutdown", str(grace)]
    process = subprocess.Popen(
        command, cwd=directory, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": ""}
    )
    try:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        port = next(found[1] for line in lines if (found := re.search(r"http://127\.0\.0\.1:(\d+)", line)))
        connection = HTTPConnection("127.0.0.1", int(port), timeout=WAIT_SECONDS)
        yield process, connection
        connection.close()
    finally:
        process.kill()
        process.communicate()


def test_fastapi_answers_with_the_events_of_a_run(tmp_path: Path) -> None:
    """A route of FastAPI returns a stream as its response, to the last event."""
    with _application(tmp_path, _PROGRAM) as (_, connection):
        connection.request("GET", "/run")
        body = connection.getresponse().read().decode()

    assert [line for line in body.splitlines() if line == "event: run.ended"] == ["event: run.ended"]
    assert "Hello." in body


@pytest.mark.parametrize(("program", "exits"), [(_PROGRAM, True), (_DEAF, False)], ids=["looks", "deaf"])
def test_a_follower_lets_the_server_exit(tmp_path: Path, program: str, exits: bool) -> None:
    """uvicorn waits for open responses after SIGTERM; a stream that never ends by itself ends then."""
    with _application(tmp_path, program) as (process, connection):
        connection.request("GET", "/run")
        connection.getresponse().read()
        connection.request("GET", "/follow")
        response = connection.getresponse()

        process.send_signal(signal.SIGTERM)

        if exits:
            assert response.read() is not None
            assert process.wait(WAIT_SECONDS) is not None
        else:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(2)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_a_request_that_a_deploy_cut_off_goes_on_by_its_id(tmp_path: Path, ending: signal.Signals) -> None:
    """A graceful stop is no worse than a kill: the next process answers the same request with the end of the run."""
    with _application(tmp_path, _WAITING, 1) as (process, connection):
        connection.request("GET", "/run")
        while not (tmp_path / "inside").exists():
            time.sleep(0.01)
        process.send_signal(ending)
        process.wait(WAIT_SECONDS)
    with _application(tmp_path, _WAITING) as (_, connection):
        connection.request("GET", "/run")
        answer = json.loads(connection.getresponse().read())

    assert answer == {"status": "succeeded", "text": "Done."}


ANN, BEN = ({"X-Forwarded-Email": f"{name}@example.org"} for name in ("ann", "ben"))


def documented(program: str) -> Any:
    """The namespace of the application `web.py`, or of a changed one."""
    shown: dict[str, Any] = {"__name__": "web"}
    exec(compile(program, "web.py", "exec"), shown)
    return shown


def web_py() -> str:
    """The text of the application that the page about web handlers shows."""
    page = (ROOT / "docs" / "how-to" / "run-from-a-web-handler.md").read_text("utf-8")
    (found,) = [each for each in blocks(page, "page") if each.directive("file") == "web.py"]
    return found.text


_PAYING = """
from pathlib import Path


@perdure.tool(effect="financial")
async def pay(amount: int) -> str:
    with open("paid", "a") as file:
        file.write(f"{amount}\\n")
    while not Path("may-go-on").exists():
        await asyncio.sleep(0.01)
    return "paid"


assistant = Agent("assistant", backend=Script(use("pay", amount=10), say("Paid.")), tools=[pay])
"""
_ANN = {"X-Forwarded-Email": "ann@example.org", "Content-Type": "application/json"}


def _answer(connection: HTTPConnection, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Send a request as Ann; the status and the body, None if it is no JSON."""
    connection.request(method, path, None if body is None else json.dumps(body), _ANN)
    reply = connection.getresponse()
    text = reply.read()
    return reply.status, json.loads(text) if text.startswith(b"{") else None


@pytest.mark.parametrize(
    ("waits", "grace", "ending", "status"),
    [
        pytest.param(1, 20, signal.SIGTERM, 202, id="as documented"),
        pytest.param(20, 1, signal.SIGTERM, 500, id="with too little time"),
        pytest.param(20, 1, signal.SIGKILL, None, id="killed"),
    ],
)
def test_a_deploy_in_the_middle_of_a_payment_leaves_the_run_to_a_worker(
    tmp_path: Path, waits: int, grace: int, ending: signal.Signals, status: int | None
) -> None:
    """No handler carries the run on: it ends without its client, and the same message gives its result, paid once."""
    program = web_py().replace("WAIT_SECONDS = 20", f"WAIT_SECONDS = {waits}") + _PAYING
    message = {"id": "m1", "text": "Pay."}
    with _application(tmp_path, program, grace) as (process, connection), ThreadPoolExecutor() as beside:
        asking = beside.submit(_answer, connection, "POST", "/chat/messages", message)
        while not (tmp_path / "paid").exists():
            time.sleep(0.01)
        process.send_signal(ending)
        if status is None:
            with pytest.raises((HTTPException, OSError)):
                asking.result(WAIT_SECONDS)
        else:
            assert asking.result(WAIT_SECONDS)[0] == status
            (tmp_path / "may-go-on").touch()
        process.wait(WAIT_SECONDS)
    with perdure.open(tmp_path / "web.db") as store:
        (run,) = store.thread("ann@example.org:chat").runs()
        assert run.state == ("running" if status is None else "succeeded")  # killed: it is interrupted
    with _application(tmp_path, program, grace) as (_, connection):
        again, answer = _answer(connection, "POST", "/chat/messages", message)

    assert (again, answer["text"], len(answer["unclear"])) == (200, "Paid.", int(status is None))
    assert (tmp_path / "paid").read_text() == "10\n"


def test_a_run_between_the_page_and_its_connection_is_shown(tmp_path: Path) -> None:
    """The page was made before the run began, and connects after it has ended; control: without the cursor it misses it."""
    (tmp_path / "may-go-on").touch()
    found: dict[str, bool] = {}
    with _application(tmp_path, web_py() + _PAYING) as (_, connection):
        _, page = _answer(connection, "PUT", "/chat")
        assert _answer(connection, "POST", "/chat/messages", {"id": "m1", "text": "Pay."})[0] == 200
        _, later = _answer(connection, "GET", "/chat")
        for after in (page["cursor"], later["cursor"]):
            other = HTTPConnection("127.0.0.1", connection.port, timeout=2)
            other.request("GET", f"/chat/events?after={after}", headers=_ANN)
            found[after] = _has_line(other.getresponse(), "event: run.finished")
            other.close()

    assert (page["messages"], [each["text"] for each in later["messages"]]) == ([], ["Pay.", "Paid."])
    assert found == {page["cursor"]: True, later["cursor"]: False}


def _has_line(stream: HTTPResponse, line: str) -> bool:
    """True if a stream has that line soon."""
    try:
        while text := stream.readline().decode():
            if text.rstrip("\n") == line:
                return True
    except TimeoutError:
        pass
    return False


def test_a_message_waits_for_its_turn_and_its_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control for all that follows: it is the worker of the page that carries runs on, and no handler."""
    monkeypatch.chdir(tmp_path)
    shown = web_py().replace("WAIT_SECONDS = 20", "WAIT_SECONDS = 0.2")
    assert "store.work(assistant, at_once=50)" in shown
    web = documented(shown.replace("store.work(assistant, at_once=50)", "asyncio.sleep(3600)"))

    with TestClient(web["application"], headers=ANN) as client:
        answers = [client.post("/1/messages", json={"id": "m1", "text": "A lamp."}) for _ in range(2)]

    assert [(each.status_code, each.json()) for each in answers] == [
        (202, {"status": "running", "text": ""})
    ] * 2


def test_a_payment_approved_during_another_run_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker of the page goes on with it once the line is free."""
    monkeypatch.chdir(tmp_path)
    paid, looking, seen = threading.Event(), threading.Event(), threading.Event()

    @perdure.tool(effect="financial", ask=True)
    def pay(amount: int) -> str:
        paid.set()
        return "paid"

    @perdure.tool(effect="read_only")
    def look() -> str:
        looking.set()
        assert seen.wait(WAIT_SECONDS)
        return "seen"

    web = documented(web_py().replace("timeout(WAIT_SECONDS)", "timeout(waits[0])"))
    waits = web["waits"] = [20.0]
    script = Script(use("pay", amount=10), use("look"), say("Looked."), say("Paid."))
    web["assistant"] = Agent("assistant", backend=script, tools=[pay, look])
    with TestClient(web["application"], headers=ANN) as client, ThreadPoolExecutor() as beside:
        ask = {"id": "m1", "text": "Pay."}
        (asked,) = client.post("/chat/messages", json=ask).json()["asked"]
        other = {"id": "m2", "text": "Look."}
        slow = beside.submit(client.post, "/chat/messages", json=other)
        assert looking.wait(WAIT_SECONDS)
        waits[0] = 0.2
        decision = {"question": asked["id"], "verdict": "approve"}
        decided = client.post("/chat/decisions", json=decision)
        waits[0] = 20.0
        seen.set()

        assert (decided.status_code, decided.json()["status"]) == (202, "running")
        slow.result(WAIT_SECONDS)
        assert client.post("/chat/messages", json=other).json()["text"] == "Looked."
        assert paid.wait(WAIT_SECONDS)
        assert client.post("/chat/messages", json=ask).json()["text"] == "Paid."


def test_the_documented_routes_of_fastapi_queue_wait_and_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker beside them carries the run on; the same message gives its result, and another user gets none."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "how-to" / "embed-in-fastapi.md").read_text("utf-8")
    shown: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page, "page"):
        if block.language == "python" and block.text != "store.close()":
            exec(compile(block.text, "page.py", "exec"), shown)
    ann, message = {"X-Session": "session-of-ann"}, {"id": "m1", "text": "Hi"}

    with TestClient(shown["application"]) as client:
        first, again = (client.post("/chat/2/messages", json=message, headers=ann) for _ in range(2))
        stranger = client.post("/chat/2/messages", json=message)
        other = client.post("/chat/2/messages", json={**message, "text": "Bye"}, headers=ann)
    shown["store"].close()

    assert (first.json(), again.json()) == ({"status": "succeeded", "text": "Hello."},) * 2
    assert (stranger.status_code, other.status_code) == (401, 409)


def test_the_documented_application_keeps_users_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's thread is not there, and one of the same name is another; without a login there is nothing."""
    monkeypatch.chdir(tmp_path)
    web = documented(web_py())
    ask = {"id": "m1", "text": "A lamp."}

    with TestClient(web["application"]) as client:
        asked = client.post("/1/messages", json=ask, headers=ANN).json()["asked"][0]
        seen = [client.get("/1", headers=each) for each in (ANN, BEN)]
        decision = {"question": asked["id"], "verdict": "approve", "by": "ann@example.org"}
        theft = client.post("/1/decisions", json=decision, headers=BEN)
        own = client.post("/1/messages", json=ask, headers=BEN)
        stray = client.post("/1/decisions", json=decision, headers=BEN)
        unknown = client.post("/1/messages", json=ask)
        decided = client.post("/1/decisions", json=decision, headers=ANN)

    assert (theft.status_code, theft.json()["facts"]) == (404, {"thread": "ben@example.org:1"})
    assert own.json()["asked"][0]["id"] != asked["id"]
    assert (stray.status_code, stray.json()["code"]) == (404, "call_not_found")
    assert unknown.status_code == 401
    assert [each.status_code for each in seen] == [200, 404]
    assert (seen[0].json()["asked"], asked["arguments"]) == ([asked], {"lamp": "Luxo"})
    assert (decided.json()["text"], decided.json()["unclear"]) == ("It comes.", [])


def test_the_documented_application_tells_of_a_call_that_may_have_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model may go on past a payment of unknown outcome; the answer is not that of a payment that was made."""
    monkeypatch.chdir(tmp_path)

    @perdure.tool(effect="financial")
    def pay(amount: int) -> str:
        raise OSError("the connection ended")

    web = documented(web_py())
    web["assistant"] = Agent("assistant", backend=Script(use("pay", amount=10), say("Done.")), tools=[pay])
    with TestClient(web["application"], headers=ANN) as client:
        answer = client.post("/1/messages", json={"id": "m1", "text": "Pay."}).json()

    assert (answer["status"], len(answer["unclear"])) == ("succeeded", 1)


def test_without_its_extra_the_server_says_what_to_install() -> None:
    """The error is still one of a missing module, and names it."""
    program = "import sys; sys.modules['httptools'] = None; import perdure.server"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    last = ended.stderr.strip().splitlines()[-1]
    assert last == (
        "ModuleNotFoundError: the server needs httptools, which is not installed: pip install 'perdure[server]'"
    )
