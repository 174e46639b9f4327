"""Memory in a checkpoint: what bears on goal and task, of the thread's owner alone, pinned."""

from __future__ import annotations

from perdure import Store, testing
from perdure.model.checkpoint import encode_checkpoint
from perdure.switching.checkpoint import derive
from tests.switching.checkpoint.works import Work, space_of


def test_what_bears_on_the_task_is_named_and_pinned(store: Store) -> None:
    """The reference names one version for ever, and the same item is found however it is asked for."""
    added = store.memory("ann").add("prefers aisle seats on flights", kind="preference")
    store.memory("ann").add("the cat is called Minka")
    thread = Work(store).turn("Find me a flight with good seats.", testing.say("Sure."))

    (reference,) = thread.checkpoint().relevant_memory_refs

    assert reference.startswith(f"mem://user/ann/{added.id}@")


def test_memory_of_another_owner_is_never_named(store: Store) -> None:
    """The thread is Ann's; what Ben likes is not looked at."""
    store.memory("ben").add("prefers aisle seats on flights")
    thread = Work(store).turn("Find me a flight with good seats.", testing.say("Sure."))

    assert thread.checkpoint().relevant_memory_refs == ()


def test_deriving_again_keeps_what_was_found_then(store: Store) -> None:
    """What is forgotten or added later changes a new checkpoint, not the one that was made."""
    added = store.memory("ann").add("prefers aisle seats on flights")
    thread = Work(store).turn("Find me a flight with good seats.", testing.say("Sure."))
    thread.switch(testing.Script(testing.say("Hello."), backend="script:two"))
    (kept,) = thread.checkpoints()
    store.memory("ann").forget(added.id)

    again = derive.derive_again(space_of(thread), kept.checkpoint)

    assert len(kept.checkpoint.relevant_memory_refs) == 1
    assert encode_checkpoint(again) == encode_checkpoint(kept.checkpoint)
    assert thread.checkpoint().relevant_memory_refs == ()
