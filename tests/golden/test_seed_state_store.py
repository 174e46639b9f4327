"""The examples of the document *State Store*: values, snapshots, commits, and a pointer that moves on success."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure import Head, Store, Thread
from perdure.engines.registry import open_sql
from perdure.errors import NotFound
from perdure.history import writer
from perdure.history.changes import patch_builder
from perdure.history.tree import Tree
from perdure.history.writer import Proposal
from perdure.model.digest import Digest, Kind, digest_of

OLD, NEW = ["buy milk"], ["buy milk", "walk dog"]


@pytest.fixture
def thread(store: Store) -> Thread:
    """The session of the example: one agent, one key, one commit."""
    begun = store.thread("ses-001", agent="todoapp")
    begun.put("/todos.json", OLD)
    return begun


def test_a_put_makes_a_value_a_snapshot_and_a_commit(thread: Thread) -> None:
    """HEAD → commit_b → snapshot_b → { "/todos.json" → value_hash }; commit_a and the old value still exist."""
    commit_a = thread.log()[0]

    head = thread.put("/todos.json", NEW)

    commit_b = thread.log()[0]
    assert head.commit == commit_b.digest
    assert commit_b.parents == (commit_a.digest,)
    assert thread.at(commit_b).root == commit_b.root != commit_a.root
    assert thread.entry("/todos.json").value == digest_of(Kind.VALUE, b'["buy milk","walk dog"]')
    assert thread.at(commit_a).get("/todos.json") == OLD
    assert thread.at(commit_a).entry("/todos.json").value == digest_of(Kind.VALUE, b'["buy milk"]')


def test_a_put_returns_the_digest_of_its_commit(thread: Thread) -> None:
    """Whoever writes receives the address of what they wrote."""
    commit = thread.put("/todos.json", NEW).commit

    assert commit is not None
    assert len(bytes.fromhex(commit)) == 32
    assert thread.at(commit).get("/todos.json") == NEW


def test_the_same_content_has_the_same_address(thread: Thread) -> None:
    """Inserts are idempotent: the same state has the same snapshot, and a commit has its lineage in its hash too."""
    first = thread.at()
    thread.put("/todos.json", NEW)
    thread.put("/todos.json", OLD)

    assert thread.root == first.root
    assert thread.entry("/todos.json") == first.entry("/todos.json")
    assert thread.digest != first.digest


def test_on_success_the_pointer_advances_over_all_writes(thread: Thread) -> None:
    """Two writes of one invocation become visible together."""
    commit_a = thread.head

    with thread.change("invocation") as change:
        change.put("/todos.json", NEW)
        change.put("/config.json", {"theme": "dark"})
        assert thread.head == commit_a

    assert thread.head.version == commit_a.version + 1
    assert (thread.get("/todos.json"), thread.get("/config.json")) == (NEW, {"theme": "dark"})


def test_on_failure_the_pointer_stays(thread: Thread) -> None:
    """HEAD → commit_a, and nothing of the invocation can be seen."""
    commit_a = thread.head

    with pytest.raises(RuntimeError), thread.change("invocation") as change:
        change.put("/todos.json", NEW)
        change.put("/config.json", {"theme": "dark"})
        raise RuntimeError

    assert thread.head == commit_a
    assert thread.paths() == ["/todos.json"]


def test_the_writes_of_one_invocation_can_be_a_chain_of_commits(thread: Thread) -> None:
    """commit_a → commit_b → commit_c, while the pointer moves once."""
    space, commit_a = thread._space, thread.head

    one = _put(thread, space.root_at(commit_a.commit), "/todos.json", NEW)
    two = _put(thread, one.root, "/config.json", {"theme": "dark"})
    done = writer.commit(space, commit_a, one, two, op_id="invocation")

    commit_c, commit_b, first = thread.log()
    assert (commit_c.parents, commit_b.parents) == ((commit_b.digest,), (first.digest,))
    assert thread.at(commit_b).paths() == ["/todos.json"]
    assert done.head == thread.head == Head("main", commit_a.version + 1, commit_c.digest)


def _put(thread: Thread, root: Digest, path: str, value: object) -> Proposal:
    """A step that puts one value; the nodes of a step before it are read from the cache, as nobody wrote them yet."""
    ops = patch_builder.Ops(thread._space, root)
    ops.put(path, value)
    patched = ops.finish()
    return Proposal(reason="put", root=patched.root, patch=patched.patch, objects=patched.objects)


def test_within_an_invocation_reads_see_its_own_writes(thread: Thread, store: Store) -> None:
    """Others, whatever handle they hold, see the last committed head."""
    other = store.thread("ses-001")

    with thread.change("invocation") as change:
        change.put("/todos.json", NEW)

        assert change.get("/todos.json") == NEW
        assert other.get("/todos.json") == thread.get("/todos.json") == OLD

    assert other.get("/todos.json") == NEW


def test_a_message_leads_to_the_complete_state_of_its_moment(thread: Thread) -> None:
    """The state field of a complete message points into the store."""
    with thread.change("invocation") as change:
        change.say("user", "Walk the dog too.", id="sub-001")
        change.put("/todos.json", NEW)
    thread.put("/todos.json", [])

    (complete,) = thread.transcript()

    assert thread.at(complete.commit).root == complete.state
    assert thread.at("sub-001").get("/todos.json") == NEW


def test_a_fork_is_initialised_with_the_state_of_its_moment(thread: Thread) -> None:
    """All reads of the fork resolve through the historical snapshot; nothing is restored."""
    with thread.change("turn") as change:
        change.say("user", "Walk the dog too.", id="sub-001")
        change.put("/todos.json", NEW)
    thread.delete("/todos.json")

    fork = thread.fork("again", at="sub-001")

    assert fork.get("/todos.json") == NEW
    assert fork.digest == thread.transcript()[0].commit
    with pytest.raises(NotFound):
        thread.get("/todos.json")


def test_undo_time_travel_and_audit_are_pointer_moves_and_walks(thread: Thread) -> None:
    """What falls out of the three rules."""
    commit_a = thread.head.commit
    commit_b = thread.put("/todos.json", NEW).commit

    thread.undo()

    assert thread.head.commit == commit_a
    assert thread.at(commit_b).get("/todos.json") == NEW
    assert [each.digest for each in thread.at(commit_b).log()] == [commit_b, commit_a]


def test_each_agent_has_state_of_its_own(store: Store, thread: Thread) -> None:
    """There is no shared state between agents."""
    store.agent("todoapp").put("/settings.json", {"theme": "dark"})

    assert store.agent("notes").paths() == []
    with pytest.raises(NotFound):
        store.thread("ses-002", agent="notes").at(thread.head.commit)


def test_the_three_tables_hold_the_example(tmp_path: Path) -> None:
    """state_commits, state_snapshots and state_values, with the document's columns and an empty parent at first."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("ses-001", agent="todoapp")
        commit = thread.put("/todos.json", NEW).commit
        root, value = thread.root, thread.entry("/todos.json").value

    sql = open_sql(str(tmp_path / "agents.db"), entries=lambda nodes, root: _entries(Tree(nodes, root)))
    commits, snapshots, values = (
        list(sql.query(f"SELECT * FROM state_{name}")[1]) for name in ("commits", "snapshots", "values")
    )
    sql.close()

    assert commits == [(commit, root, "")]
    assert snapshots == [(root, f'{{"/todos.json": "{value}"}}')]
    assert values == [(value, '["buy milk","walk dog"]')]


def _entries(tree: Tree) -> list[tuple[str, Digest]]:
    return [(entry.path, entry.value) for entry in tree.entries()]
