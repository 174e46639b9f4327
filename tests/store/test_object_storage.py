"""The store that an agent's threads live in, and others, which refuse them."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

import perdure
from perdure import Agent
from perdure.errors import Invalid, WrongStore
from perdure.runtime.agent.file import Definition


def test_another_store_refuses_the_agents_threads(tmp_path: Path) -> None:
    """Both stores are named, and nothing is begun."""
    home, other = tmp_path / "home.db", tmp_path / "other.db"
    agent = Agent("planner", object_storage=str(home))

    with perdure.open(other) as store:
        with pytest.raises(WrongStore) as refused:
            store.thread("t", agent=agent)

        assert (refused.value.agent, refused.value.expected) == ("planner", str(home))
        assert refused.value.actual == str(other)
        assert list(store.threads()) == []


@pytest.mark.parametrize("form", ["{}/home.db", "sqlite:///{}/home.db", "{}/x/../home.db"])
def test_its_own_store_takes_them_however_it_is_named(form: str, tmp_path: Path) -> None:
    """A path, a URL and a way around are one store."""
    agent = Agent("planner", object_storage=form.format(tmp_path))

    with perdure.open(tmp_path / "home.db") as store:
        thread = store.thread("t", agent=agent)

        assert thread.put("/a.json", 1).version == 1


def test_a_definition_of_another_store_is_not_kept(tmp_path: Path) -> None:
    """A definition is kept where its agent's threads are to live."""
    with perdure.open(tmp_path / "here.db") as store:
        with pytest.raises(WrongStore):
            store.definitions.apply("planner", Definition(object_storage=str(tmp_path / "there.db")))

        assert store.definitions.find("planner") is None


@pytest.mark.parametrize(
    ("server", "is_kept"), [({"authorization_token": "xyzzy"}, False), ({"name": "shop"}, True)]
)
def test_a_definition_with_a_credential_is_not_kept(server: dict[str, str], is_kept: bool) -> None:
    """No key is written to a store; control: other options are."""
    options = {"vendor": {"anthropic-messages": {"mcp_servers": [server]}}}
    with perdure.open("memory:") as store:
        with nullcontext() if is_kept else pytest.raises(Invalid, check=_names_a_credential):
            store.definitions.apply("planner", Definition(options=options))

        assert (store.definitions.find("planner") is not None) is is_kept


def _names_a_credential(error: Invalid) -> bool:
    return error.code == "credential_in_options" and "xyzzy" not in str(error)


def test_a_store_that_is_moved_with_its_directory_is_still_the_agents(tmp_path: Path) -> None:
    """What is kept names the file alone."""
    (tmp_path / "a").mkdir()
    with perdure.open(tmp_path / "a" / "home.db") as store:
        store.definitions.apply("planner", Definition(object_storage=str(tmp_path / "a" / "home.db")))
    (tmp_path / "a").rename(tmp_path / "b")

    with perdure.open(tmp_path / "b" / "home.db") as store:
        agent = store.definitions.get("planner").agent()

        assert store.thread("t", agent=agent).head.version == 0


def test_a_copy_under_another_name_refuses_them(tmp_path: Path) -> None:
    """The same conversation must not go on in two places."""
    with perdure.open(tmp_path / "home.db") as store:
        store.definitions.apply("planner", Definition(object_storage=str(tmp_path / "home.db")))
        store.backup(tmp_path / "copy.db")

    with perdure.open(tmp_path / "copy.db") as store, pytest.raises(WrongStore):
        store.thread("t", agent=store.definitions.get("planner").agent())


def test_an_agent_that_names_no_store_lives_in_any(tmp_path: Path) -> None:
    """Control: without object_storage a copied store goes on as it is."""
    agent = Agent("planner")
    with perdure.open(tmp_path / "home.db") as store:
        store.thread("t", agent=agent).put("/a.json", 1)
    shutil.copy(tmp_path / "home.db", tmp_path / "copy.db")

    with perdure.open(tmp_path / "copy.db") as store:
        assert store.thread("t", agent=agent).get("/a.json") == 1
