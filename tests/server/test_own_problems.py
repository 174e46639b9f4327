"""Problem documents of one's own application: a status and a body that fit its clients, not Python."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

import perdure
from perdure import Agent, aio, errors
from perdure.server import problem, problem_handler
from perdure.testing import Script, fail
from tests.surfaces.test_cli_advice import PYTHON


def body(response: Response) -> Any:
    """The document of an answer."""
    return json.loads(bytes(response.body))


def raised(error: Exception, *, handled: bool = True) -> Any:
    """The answer of an application whose only handler raises an error."""

    async def raises(request: Request) -> Response:
        raise error

    handlers: Any = {errors.PerdureError: problem_handler} if handled else {}
    application = Starlette(routes=[Route("/", raises)], exception_handlers=handlers)
    return TestClient(application, raise_server_exceptions=False).get("/")


@pytest.mark.parametrize("handled", [True, False])
def test_the_handler_answers_with_the_status_of_the_error(handled: bool) -> None:
    """A problem document; control: without the handler it is the 500 of the framework."""
    answer = raised(errors.NotFound("there is no such thread.", code="thread_not_found"), handled=handled)

    assert answer.status_code == (404 if handled else 500)
    assert answer.headers["content-type"].startswith("application/problem+json") == handled
    if handled:
        assert (answer.json()["code"], answer.json()["status"]) == ("thread_not_found", 404)


def test_a_forgotten_await_is_the_fault_of_the_program(caplog: pytest.LogCaptureFixture) -> None:
    """500 and not 422: the answer and the log name the call, and the log says what to do."""

    async def forgets(request: Request) -> Response:
        async with aio.open("memory:") as store:
            thread = await store.thread("t", agent="a")
            async with thread.change("half") as change:
                change.put("/a.json", 1)  # pyright: ignore[reportUnusedCoroutine]
        return Response()

    handlers: Any = {errors.PerdureError: problem_handler}
    application = Starlette(routes=[Route("/", forgets)], exception_handlers=handlers)
    answer = TestClient(application, raise_server_exceptions=False).get("/")

    assert (answer.status_code, answer.json()["code"]) == (500, "not_awaited")
    assert (answer.json()["facts"]["calls"], answer.json()["advice"]) == (["put"], "")
    assert "put" in answer.json()["detail"]
    assert "`await`" in caplog.text


def test_a_client_is_not_advised_in_python() -> None:
    """The library names a parameter, which a client of an application does not have."""
    store = perdure.open("memory:")
    with pytest.raises(errors.NotFound) as missing:
        store.thread("nope")

    assert PYTHON.search(missing.value.advice)  # control: the advice of the library
    assert not PYTHON.search(json.dumps(body(problem(missing.value))))
    store.close()


def opened_by_ben(store: perdure.Store, id: str, **how: Any) -> errors.PerdureError:
    """The error that the library raises when Ben opens a thread that is none of his."""
    with pytest.raises(errors.PerdureError) as refused:
        store.thread(id, **how)
    return refused.value


@pytest.mark.parametrize(
    ("id", "how", "code", "names"),
    [
        ("ben:1", {}, "thread_not_found", "ann:1"),
        ("ann:1", {"agent": "notes"}, "thread_of_another_agent", "banker"),
        ("ann:1", {"agent": "notes", "owner": "ben"}, "thread_of_another_owner", None),
    ],
)
def test_a_client_is_told_nothing_of_threads_that_it_did_not_name(
    id: str, how: dict[str, str], code: str, names: str | None
) -> None:
    """No id that is like the one it gave, and no owner; control: the library tells the program what it may have meant."""
    with perdure.open("memory:") as store:
        store.thread("ann:1", agent="banker", owner="ann")
        error = opened_by_ben(store, id, **how)
    document = body(problem(error))

    assert error.code == code
    assert names is None or (names in str(error) and names in str(error.facts))
    assert (document["code"], document["facts"]) == (code, {"thread": id})
    assert not {"ann:1", "banker", "ben"} & set(
        re.findall(r"[\w:]+", document["detail"] + document["advice"])
    ) - {id}


def test_a_client_is_not_told_where_the_store_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A path may have the name of a person: it is in the log alone."""
    place = str(tmp_path / "ann" / "web.db")
    error = errors.Unavailable(f"{place} can only be read.", code="file_read_only", path=place)

    answer = problem(error)

    assert answer.status_code == 503
    assert str(tmp_path) not in json.dumps(body(answer))
    assert place in caplog.text


def test_more_members_stand_beside_the_document_and_replace_nothing() -> None:
    """Such as what was done before the error."""
    found = body(problem(errors.Conflict("no.", code="decided"), decided="approve", status=200))

    assert (found["decided"], found["status"]) == ("approve", 409)


def test_a_failed_run_says_how_it_is_gone_on_with() -> None:
    """502, with advice for the client that sent the message."""
    store = perdure.open("memory:")
    thread = store.thread("trip", agent=Agent("planner", backend=Script(fail())))
    with pytest.raises(errors.RunFailed) as failed:
        thread.run("go", id="m1")

    found = problem(failed.value)

    assert (found.status_code, body(found)["code"]) == (502, "run_failed")
    assert "same id" in body(found)["advice"]
    store.close()
