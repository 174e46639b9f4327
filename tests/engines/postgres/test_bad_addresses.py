"""An address that leads nowhere: one clear error each, without the password, and nothing is made."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import perdure
from perdure.errors import Invalid, NotFound, PerdureError, Unavailable
from perdure.model.names import shown_address
from tests.coded import raises
from tests.engines.postgres.server import MISSING, Server

SECRET = "s3cret-w0rd"
server = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql://ann:{SECRET}@db.example/agents", "postgresql://ann@db.example/agents"),
        (f"postgresql://ann:{SECRET}@a:1,b:2/agents?x=1", "postgresql://ann@a:1,b:2/agents?x=1"),
        (f"postgres://ann:p@{SECRET}/x?y@db/agents", "postgres://ann@db/agents"),
        (f"postgresql:///agents?user=ann&password={SECRET}", "postgresql:///agents?user=ann&password=***"),
        (f"yours://ann:{SECRET}@host", "yours://ann@host"),
        ("postgresql://db.example/agents", "postgresql://db.example/agents"),
        ("agents.db", "agents.db"),
        ("postgres@/x", "postgres@/x"),
        (f"postgresql:ann:{SECRET}@db.example", "postgresql:ann@db.example"),
        ("sqlite:////srv/a:c@b.db", "sqlite:////srv/a:c@b.db"),
        ("memory:ann:x@y", "memory:ann:x@y"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    """Whatever can be part of a password is left out, and nothing else."""
    assert shown_address(url) == shown


@server
def test_a_plus_sign_and_a_space_reach_the_server_as_they_are() -> None:
    """In an address libpq reads `%20` as a space, and a plus sign as itself."""
    from perdure.engines.postgres.connections import parse_address

    address = parse_address(
        "postgresql:///agents?options=-c%20a%3Db&password=x+y&tenant=a+b", read_only=False
    )

    assert address.parameters["options"] == "-c a=b"
    assert address.parameters["password"] == "x+y"
    assert address.tenant == "a+b"


ADDRESS = f"postgresql://ann:{SECRET}@db.example:5432/agents?sslmode=prefer&application_name=x"
SPOILERS = ("", " ", ";", ":", "/", "//", "@", "?", "&", "=", "'", '"', "[", "%", "\\", ",", "\n", "ü")
_START, _END = ADDRESS.index(SECRET), ADDRESS.index(SECRET) + len(SECRET)


def mistyped() -> Iterator[str]:
    """Every address in which one character is missing, or is another, or is added, outside the password.

    Without the colon before it a password is part of the user's name, and nobody can tell.
    """
    for at in (*range(_START - 1), *range(_END, len(ADDRESS) + 1)):
        for spoiler in SPOILERS:
            yield ADDRESS[:at] + spoiler + ADDRESS[at:]
            yield ADDRESS[:at] + spoiler + ADDRESS[at + 1 :]
    for key in ("password", "PASSWORD", "Passwd", "pwd", "sslpassword", "api_token"):
        for mark in ("?", "&", ";", " ", "?x=1;", "?x=1&"):
            yield f"postgresql://ann@db.example/agents{mark}{key}={SECRET}"
            yield f"postgresql://ann@db.example/agents{mark}{key}%3d{SECRET}"
            yield f"postgresql//db.example/agents{mark}{key}={SECRET};y=2"
    yield f"host=db.example user=ann password={SECRET}"
    yield f"password = '{SECRET}' host=db.example"


def test_no_mistyped_address_is_shown_with_its_password() -> None:
    """Wherever one character is wrong.  Control: the address itself is shown, so the rest of it is not hidden."""
    addresses = list(mistyped())

    assert [address for address in addresses if SECRET in shown_address(address)] == []
    assert len(addresses) > 2_000
    assert shown_address(ADDRESS) == ADDRESS.replace(f":{SECRET}", "")


def test_a_mistyped_option_is_named() -> None:
    """With the one that is meant; control: what may be a part of a password is not named."""
    with raises(Invalid, "url_invalid") as refused:
        perdure.open("postgresql://ann@db.example/agents?sslmode=require&tenat=x")
    with raises(Invalid, "url_invalid") as hidden:
        perdure.open(f"postgresql://ann:s?{SECRET}@db.example/agents")

    with raises(Invalid, "url_invalid") as odd:
        perdure.open("postgresql://ann@db.example/agents?zzzzzzzz=x")
    with raises(Invalid, "url_invalid") as cut:
        perdure.open("postgresql://ann:top?secretword=1/h")

    assert "there is no option 'tenat'" in refused.value.message
    assert refused.value.advice == "Did you mean 'tenant'?"
    check_hidden(hidden.value)
    assert "there is no option 'zzzzzzzz'" in odd.value.message
    assert odd.value.advice.startswith("Write postgresql://")
    assert "secretword" not in str(cut.value) + str(cut.value.facts)


@pytest.mark.parametrize(
    "url",
    [
        f" postgresql://ann:{SECRET}@db.example/agents",
        f"postgresql//ann:{SECRET}@db.example/agents",
        f"'postgresql://ann:{SECRET}@db.example/agents'",
        f"postgresql /ann:{SECRET}@db.example/agents",
        f"host=db.example user=ann password={SECRET}",
    ],
)
def test_a_mistyped_address_is_not_taken_for_a_file(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is invalid, and no file of that name is made."""
    monkeypatch.chdir(tmp_path)

    with raises(Invalid, "url_invalid") as refused:
        perdure.open(url)

    check_hidden(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["postgres.db", "postgres/agents.db", "a@b.db", "./postgres/a@b.db", "tokens=1"]
)
def test_a_file_may_have_almost_any_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: what only resembles an address is a file, and is shown as it is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "postgres").mkdir()

    with perdure.open(name) as store:
        store.thread("t", agent="clerk").put("/a.json", 1)

    assert (tmp_path / name).exists()
    assert shown_address(name) == name


def check_hidden(error: PerdureError) -> None:
    """Check that neither the error nor any of its causes quotes the password."""
    assert SECRET not in str(error)
    assert SECRET not in repr(error.facts)
    assert SECRET not in "".join(traceback.format_exception_only(error))
    cause = error.__cause__
    while cause is not None:
        assert SECRET not in str(cause)
        cause = cause.__cause__


@server
@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{SECRET}@[::1/agents",
        f"postgresql://ann:{SECRET}@host:port/agents",
        f"postgresql://ann:{SECRET}@host/agents?conect_timeout=3",
        f"postgresql://ann:{SECRET}@host/agents?pool_max=0",
        f"postgresql://ann:{SECRET}@host/agents?pool_max=many",
        f"postgresql://ann:{SECRET}@host/agents%00",
        f"postgresql:ann:{SECRET}@host",
        f"postgresql://ann:p@{SECRET}@127.0.0.1:1/agents",
    ],
)
def test_an_address_with_a_typo_is_invalid(url: str) -> None:
    """It is refused before anything is sent anywhere."""
    with raises(Invalid, "url_invalid") as refused:
        perdure.open(url)

    check_hidden(refused.value)


@server
def test_a_port_where_nobody_listens_is_unreachable() -> None:
    """The error says that no server answers."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]

        with raises(Unavailable, "server_unreachable") as refused:
            perdure.open(f"postgresql://ann:{SECRET}@127.0.0.1:{port}/agents")

    check_hidden(refused.value)


@server
def test_a_database_that_does_not_exist_is_not_found(postgres: Server) -> None:
    """It is not made: creating a database is a decision of the one who runs the server."""
    with raises(NotFound, "database_not_found", database="nowhere") as refused:
        perdure.open(postgres.url("nowhere").replace("postgres@", f"postgres:{SECRET}@"))

    check_hidden(refused.value)
    assert postgres.sql("SELECT 1 FROM pg_database WHERE datname = 'nowhere'") == []


@pytest.fixture
def guarded(postgres: Server) -> Iterator[str]:
    """A role that needs a password."""
    role = f"guarded_{uuid4().hex[:12]}"
    perdure.open(postgres.url()).close()
    postgres.sql(f"CREATE ROLE {role} LOGIN PASSWORD '{SECRET}'")
    yield role
    postgres.sql(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@server
@pytest.mark.parametrize("given", ["", ":wrong"], ids=["none", "wrong"])
def test_a_wrong_password_is_refused(given: str, guarded: str, postgres: Server) -> None:
    """The error says that the user or the password is wrong."""
    url = postgres.url(user=guarded)

    with raises(Unavailable, "authentication_failed"):
        perdure.open(url.replace(guarded, f"{guarded}{given}"))


@server
def test_a_store_with_a_password_shows_none(guarded: str, postgres: Server) -> None:
    """Neither its address nor its name nor what `doctor` shows has the password."""
    postgres.sql(
        f"GRANT USAGE ON SCHEMA perdure TO {guarded}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA perdure TO {guarded}",
    )
    url = f"{postgres.url(user=guarded)}&tenant=hidden".replace(guarded, f"{guarded}:{SECRET}")

    with perdure.open(url) as store:
        assert guarded in store.url
        assert SECRET not in f"{store.url} {store!r} {store.facts()}"


@pytest.mark.parametrize(
    "tenant", ["m%FCller", "\ud800", "a&tenant=b"], ids=["Latin-1", "surrogate", "twice"]
)
def test_a_tenant_that_cannot_be_told_from_others_is_invalid(tenant: str) -> None:
    """Bytes that are not UTF-8 would all be read as one character, and two tenants as one."""
    from perdure.engines.postgres.connections import parse_address

    with raises(Invalid, "url_invalid"):
        parse_address(f"postgresql://ann@db.example/agents?tenant={tenant}", read_only=False)
