"""What a conversation holds, counted in files and in threads, and what must be true of any imported thread."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import perdure
from perdure import Store, Thread
from perdure.integrations.importers import import_sessions
from perdure.model.head import Head
from tests.integrations.exports import exports_faults

__all__ = ["Counts", "import_faults", "in_store", "in_thread", "sound"]


@dataclass
class Counts:
    """Messages and calls."""

    inputs: int = 0  # of the user
    replies: int = 0  # of the model
    calls: int = 0
    results: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Both together."""
        return Counts(
            self.inputs + other.inputs,
            self.replies + other.replies,
            self.calls + other.calls,
            self.results + other.results,
        )


def in_thread(thread: Thread) -> Counts:
    """Count each message of a thread once, on whatever timelines it is, undone ones excluded."""
    found = Counts()
    seen: set[str] = set()
    for hold in thread.timelines():
        for entry in thread.on(hold.head.timeline).transcript():
            if entry.id in seen:
                continue
            seen.add(entry.id)
            message = entry.message
            found.inputs += message.role == "user" and not message.tool_results
            found.replies += message.role == "assistant"
            found.calls += len(message.tool_calls)
            found.results += len(message.tool_results)
    return found


def in_store(store: Store) -> Counts:
    """Count all threads."""
    return sum((in_thread(thread) for thread in store.threads()), Counts())


def import_faults(place: Path, wanted: Counts) -> list[str]:
    """Import what is at a place, twice; return what is wrong with the counts, with the threads, and with the second import."""
    with perdure.open("memory:") as store:
        import_sessions(store, place)
        found, heads = in_store(store), _heads(store)
        again = import_sessions(store, place)
        wrong = [] if found == wanted else [f"counted {found}, and there are {wanted}"]
        if (again.messages, again.calls) != (0, 0) or _heads(store) != heads:
            wrong.append(f"a second import added {again.messages} messages and {again.calls} calls")
        return [*wrong, *sound(store)]


def _heads(store: Store) -> list[Head]:
    return [hold.head for thread in store.threads() for hold in thread.timelines()]


def sound(store: Store) -> list[str]:
    """Return what is wrong with imported threads: damage, runnable calls, words of the system, invalid exports."""
    wrong = [str(fault) for fault in store.verify().faults]
    for thread in store.threads():
        states = {call.state for call in thread.calls()}
        wrong += [f"{thread.id}: call {state}" for state in states - {"succeeded", "failed", "unknown"}]
        for hold in thread.timelines():
            line = thread.on(hold.head.timeline)
            wrong += [
                f"{thread.id}: {entry.id} is of the system"
                for entry in line.transcript()
                if entry.role == "system"
            ]
            wrong += exports_faults(line)
    return wrong
