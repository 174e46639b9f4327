"""Deletes checkpoints: of a thread, of runs, or all but the latest.

What is deleted is gone for LangGraph at once, and its bytes are free after `gc`.  Checkpoints that a later one is built from,
through its delta channels, stay.  If another writer moves a head meanwhile, the checkpoints are chosen again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from perdure.errors import Busy, StaleHead
from perdure.integrations.langgraph.checkpoints import FoundCheckpoint, GraphThreads, thread_id_of
from perdure.integrations.langgraph.codec import Codec
from perdure.model import names

__all__ = ["CheckpointDeletion"]

_ATTEMPTS_MAX = 256


class CheckpointDeletion:
    """Deletes checkpoints of the threads of a store."""

    def __init__(self, threads: GraphThreads, codec: Codec) -> None:
        """Use the threads of a saver, and its codec for their metadata."""
        self._threads, self._codec = threads, codec

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread with its checkpoints and its ledger."""
        thread = self._threads.find(thread_id)
        if thread is not None:
            thread.rm(force=True)
        self._threads.forget(thread_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that have one of these runs in their metadata."""
        wanted = set(run_ids)
        for thread in list(self._threads.every()):
            thread_id = thread_id_of(thread)
            if thread_id is None:
                continue
            self._delete(
                thread_id,
                lambda every: [
                    each for each in every if self._codec.decode(each.record.metadata).get("run_id") in wanted
                ],
            )

    def prune(self, thread_ids: Sequence[str], strategy: str) -> None:
        """Delete all checkpoints of these threads, with `keep_latest` all but the latest of each namespace."""
        names.check_choice("strategy", strategy, ("keep_latest", "delete"))
        for thread_id in thread_ids:
            self._delete(thread_id, self._older if strategy == "keep_latest" else lambda every: every)

    def _older(self, every: Sequence[FoundCheckpoint]) -> list[FoundCheckpoint]:
        """Return the checkpoints of a thread that neither are the latest of their namespaces nor are needed by these."""
        namespaces = {(each.record.thread_id, each.record.namespace) for each in every}
        latest = [self._threads.latest_of(*each, every) for each in namespaces]
        kept = [each for each in latest if each is not None]
        needed = [found for each in kept for found in self._needed(each)]
        keys = {each.key for each in (*kept, *needed)}
        return [each for each in every if each.key not in keys]

    def _delete(
        self, thread_id: str, choose: Callable[[Sequence[FoundCheckpoint]], Sequence[FoundCheckpoint]]
    ) -> None:
        """Delete the checkpoints of a thread that are chosen; if another writer moves a head, choose again."""
        namespaces = set[str]()
        for _ in range(_ATTEMPTS_MAX):
            heads = self._threads.heads(thread_id)
            every = self._threads.sorted(thread_id)
            gone = choose(every)
            namespaces |= {each.record.namespace for each in gone}
            if not namespaces or not heads:  # nothing is chosen, or the thread was removed
                return
            keys = {each.key for each in gone}
            left = [each for each in every if each.key not in keys]
            try:
                self._threads.delete(thread_id, gone, left, heads, namespaces)
            except StaleHead:
                self._threads.forget(thread_id)
                continue
            return
        raise Busy(f"the head of thread '{thread_id}'", "other writers are done")

    def _needed(self, found: FoundCheckpoint) -> Iterator[FoundCheckpoint]:
        """Yield the ancestors from which a checkpoint's delta channels are built again."""
        record = found.record
        metadata: Mapping[str, Any] = self._codec.decode(record.metadata)
        counters: Mapping[str, Any] = metadata.get("counters_since_delta_snapshot") or {}
        missing = set(counters) - set(record.channels)
        while missing and record.parent is not None:
            below = self._threads.named(record.thread_id, record.namespace, record.parent)
            if below is None:
                return
            yield below
            record = below.record
            missing -= set(record.channels)
