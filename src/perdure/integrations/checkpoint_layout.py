"""Where a checkpoint of LangGraph is in a thread: names, paths and timelines, for the saver that writes it and for the importer.

Nothing here needs LangGraph, so its databases can be imported without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from perdure.integrations import foreign_ids
from perdure.model.head import MAIN
from perdure.shapes.imported import SESSION_PATH

__all__ = [
    "CHANNELS",
    "RECORD",
    "SESSION_PATH",
    "WRITES",
    "carried_record",
    "channel_path",
    "gone_path",
    "has_work",
    "is_of_task",
    "is_trigger",
    "line_of",
    "name_of",
    "write_path",
    "writes_path",
]

RECORD = "/langgraph/checkpoint.json"
CHANNELS = "/langgraph/channels"
WRITES = "langgraph/writes"
_OF_ROOT, _OF_NAMESPACE = "langgraph", "langgraph-ns"
_TRIGGER = "branch:to:"


def line_of(namespace: str) -> str:
    """Return the timeline of a namespace."""
    return MAIN if namespace == "" else f"langgraph/{sha256(_bytes(namespace)).hexdigest()[:48]}"


def is_trigger(channel: str, value: object) -> bool:
    """True for a channel that only says which node is next; a path for it would come and go with each step."""
    return value is None and channel.startswith(_TRIGGER)


def name_of(namespace: str, id: str) -> str:
    """Return the name of the commit of a checkpoint."""
    if namespace == "":
        return foreign_ids.moment_name(_OF_ROOT, id)
    return foreign_ids.moment_name(_OF_NAMESPACE, f"{sha256(_bytes(namespace)).hexdigest()[:48]}/{id}")


def channel_path(channel: str) -> str:
    """Return the path of a channel."""
    return f"{CHANNELS}/{foreign_ids.path_segment(channel)}"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _segments(namespace: str, id: str) -> str:
    return f"{foreign_ids.path_segment(namespace)}/{foreign_ids.path_segment(id)}"


def writes_path(namespace: str, id: str) -> str:
    """Return the prefix of the writes that belong to a checkpoint."""
    return f"/writes/{_segments(namespace, id)}"


def write_path(namespace: str, id: str, write: Mapping[str, Any]) -> str:
    """Return the path of one write."""
    task, index = foreign_ids.path_segment(str(write["task"])), int(write["index"])
    return f"{writes_path(namespace, id)}/{task}/{index + 10:06}.json"


def gone_path(namespace: str, id: str) -> str:
    """Return the path of the mark that a checkpoint was deleted."""
    return f"/gone/{_segments(namespace, id)}"


def has_work(checkpoint: Mapping[str, Any]) -> bool:
    """True if nodes are to run after a checkpoint, as far as the checkpoint itself says so.

    A topic that its readers have emptied has a new version and no value, and triggers nothing.
    """
    values, versions, seen = (
        checkpoint[key] for key in ("channel_values", "channel_versions", "versions_seen")
    )
    if values.get("__pregel_tasks") or "__start__" in values:
        return True
    if any(channel.startswith(_TRIGGER) for channel in values):
        return True
    return any(
        channel in values
        and not (type(values[channel]) is list and not values[channel])
        and str(versions.get(channel, "")) > str(version)
        for node, versions_of_node in seen.items()
        if node not in ("__input__", "__interrupt__")
        for channel, version in versions_of_node.items()
    )


def is_of_task(namespace: str) -> bool:
    """True if a namespace belongs to one task: `node:task`.  Two runs never meet there, whatever a node calls at once."""
    return ":" in namespace.rpartition("|")[2]


def carried_record(
    place: tuple[str, str],
    checkpoint: Mapping[str, Any],
    values: Mapping[str, Any],
    metadata: Mapping[str, Any],
    form: Callable[[Any], Any],
) -> dict[str, Any]:
    """Return what the saver stores beside the channels, of a checkpoint that another saver has put.

    `place` is its thread and namespace, `form` makes its values JSON.  It has no parent: that one is not carried over.
    """
    versions: dict[str, Any] = checkpoint.get("channel_versions") or {}
    seen: dict[str, Any] = checkpoint.get("versions_seen") or {}
    triggers = sorted(channel for channel, value in values.items() if is_trigger(channel, value))
    sent = checkpoint.get("pending_sends")
    return {
        "thread_id": place[0],
        "namespace": place[1],
        "id": str(checkpoint["id"]),
        "parent": None,
        "v": checkpoint["v"],
        "ts": str(checkpoint.get("ts") or ""),
        "channels": sorted(values.keys() - triggers),
        "triggers": triggers,
        "versions": _versions(versions),
        "seen": {str(node): _versions(each) for node, each in seen.items()},
        "updated": form(checkpoint.get("updated_channels")),
        "metadata": form(metadata),
        "pending_sends": form(sent) if sent else None,
        "has_work": has_work({"channel_values": values, "channel_versions": versions, "versions_seen": seen}),
    }


def _versions(stored: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of channels as texts, as our saver counts; some savers have counted with numbers."""
    return {
        channel: each if isinstance(each, str) else f"{int(each):032}.{0:016}"
        for channel, each in stored.items()
    }
