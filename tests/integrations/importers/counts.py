"""What a conversation holds, counted in files and in threads, and what must be true of any imported thread."""

from __future__ import annotations

from dataclasses import dataclass

from perdure import Store, Thread
from perdure.providers.registry import APIS
from perdure.providers.validator import check

__all__ = ["Counts", "in_store", "in_thread", "sound"]

MODELS = {
    "openai-chat": "gpt-5.6",
    "openai-responses": "gpt-5.6",
    "anthropic-messages": "claude-opus-4-5",
    "gemini-generate": "gemini-3-pro",
    "gemini-interactions": "gemini-3-pro",
    "bedrock-converse": "anthropic.claude-opus-4-5",
    "mistral-chat": "mistral-large-latest",
    "azure-inference-chat": "gpt-5.6",
    "ollama-chat": "qwen3",
}


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
            wrong += [each for api in APIS for each in _broken(line, api)]
    return wrong


def _broken(line: Thread, api: str) -> list[str]:
    if not line.transcript(limit=1):
        return []
    body = line.export(api, model=MODELS[api]).body
    broken = check(body, api, model=MODELS[api])
    return [f"{line.id}: {api} {each.code}" for each in broken if each.level == "error"]
