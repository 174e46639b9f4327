"""Agents share nothing.  Another agent's thread or map is refused or absent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perdure import Agent, Store, Thread
from perdure.errors import Conflict, NotFound
from tests.coded import raises


@pytest.fixture
def secret(store: Store) -> Thread:
    """A thread of agent a with a secret in it and in its agent's map."""
    thread = store.thread("secret", agent="a", owner="ann")
    with thread.change("secret") as change:
        change.say("user", "the secret", id="secret-message")
        change.put("/secret.json", "the secret")
        change.agent.put("/agent-secret.json", "the secret")
    return thread


def test_another_agent_cannot_open_the_thread(store: Store, secret: Thread) -> None:
    """`Conflict`, and nothing is begun or changed."""
    with raises(Conflict, "thread_of_another_agent", agent="b"):
        store.thread("secret", agent="b")
    with raises(Conflict, "thread_of_another_agent", agent="b"):
        store.thread("secret", agent=Agent("b"), owner="ann")
    with raises(Conflict, "thread_of_another_owner", owner="bob"):
        store.thread("secret", agent="a", owner="bob")
    with raises(Conflict, "thread_of_another_owner", owner="bob"):
        store.thread("secret", owner="bob")

    assert store.thread("secret", agent="a", owner="ann").get("/secret.json") == "the secret"


def test_another_agent_does_not_find_it_listed(store: Store, secret: Thread) -> None:
    """Listing what is b's shows nothing of a's."""
    store.thread("mine", agent="b", owner="ann")

    assert [found.id for found in store.threads(agent="b")] == ["mine"]
    assert [found.id for found in store.threads(agent="a", owner="ann")] == ["secret"]
    assert list(store.threads(agent="c")) == []


def test_another_agents_map_is_another_map(store: Store, secret: Thread) -> None:
    """The map of b does not hold what a put into its own."""
    assert store.agent("a").get("/agent-secret.json") == "the secret"

    assert store.agent("b").paths() == []
    with pytest.raises(NotFound):
        store.agent("b").get("/agent-secret.json")
    with store.thread("mine", agent="b").change("look") as change:
        assert change.agent.paths() == []


GUESSES: dict[str, Callable[[Thread, str], object]] = {
    "at": lambda thread, guess: thread.at(guess),
    "fork": lambda thread, guess: thread.fork("stolen", at=guess),
    "undo": lambda thread, guess: thread.undo(to=guess),
    "diff": lambda thread, guess: thread.diff(guess),
    "pick": lambda thread, guess: thread.cherry_pick(guess),
    "artifact": lambda thread, guess: thread.artifacts.show(guess),
}


@pytest.mark.parametrize("way", GUESSES.values(), ids=GUESSES.keys())
def test_guessing_a_digest_does_not_help(
    store: Store, secret: Thread, way: Callable[[Thread, str], object]
) -> None:
    """A commit, root, value or body of another space is not found, whoever names it."""
    mine = store.thread("mine", agent="b")
    mine.put("/n.json", 1)
    head = mine.head
    digests = [
        secret.head.commit,
        secret.root,
        secret.entry("/secret.json").value,
        store.agent("a").head.commit,
        store.agent("a").root,
    ]

    for digest in digests:
        with pytest.raises(NotFound):
            way(mine, str(digest))
        with pytest.raises(NotFound):
            store.agent("b").at(str(digest))

    assert mine.head == head


def test_guessing_an_id_does_not_help(store: Store, secret: Thread) -> None:
    """Ids of messages name moments of their own thread only."""
    mine = store.thread("mine", agent="b")

    with raises(NotFound, "revision_not_found", name="secret-message", timeline="main"):
        mine.at("secret-message")
    assert secret.at("secret-message").get("/secret.json") == "the secret"


def test_equal_content_is_not_shared(store: Store, secret: Thread) -> None:
    """Whoever knows the digest does not find the bytes, and putting the same value stores it there by itself."""
    engine, mine = store._resources.engine, store.thread("mine", agent="b")
    mine.put("/other.json", "mine")
    digest = secret.entry("/secret.json").value
    elsewhere = [mine._space.name, "agent:b", "store", "thread:nowhere"]

    assert engine.objects(secret._space.name, (digest,))[0].body == b'"the secret"'  # control: it is there
    for space in elsewhere:
        with pytest.raises(NotFound):
            engine.objects(space, (digest,))
        assert engine.missing(space, (digest,)) == [digest]
    mine.put("/guess.json", "the secret")

    assert mine.entry("/guess.json").value == digest
    assert engine.objects(mine._space.name, (digest,))[0].body == b'"the secret"'
    with pytest.raises(NotFound):
        engine.objects("agent:b", (digest,))
    secret.rm()
    assert mine.get("/guess.json") == "the secret"
    assert store.verify().ok


def test_a_program_that_names_no_agent_is_trusted(store: Store, secret: Thread) -> None:
    """Control: without agent= the same thread opens."""
    assert store.thread("secret").get("/secret.json") == "the secret"
    assert store.thread("secret").agent == "a"
