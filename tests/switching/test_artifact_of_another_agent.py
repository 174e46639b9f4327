"""Artifacts: what another agent's thread keeps is never resolved, never rendered.

A reference in a message is looked for in the thread's own space alone, whoever else may have such a thing.
"""

from __future__ import annotations

import base64

import perdure
from perdure import Image, Store, Thread
from perdure.errors import PerdureError

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
BACKENDS = ("openai-chat:gpt-5.4", "openai:gpt-5.4", "anthropic:claude-sonnet-5-5", "gemini:gemini-2.5-pro")


def rendered(thread: Thread, uri: str) -> list[str]:
    """What each backend would be sent after a user showed that picture."""
    with thread.change("show") as change:
        change.say("user", [Image(uri, "image/png"), perdure.Text("What is this?")])
    bodies: list[str] = []
    for backend in BACKENDS:
        try:
            bodies.append(str(thread.render(backend).body))
        except PerdureError as refused:
            bodies.append(str(refused))
    return bodies


def kept(store: Store) -> str:
    """The reference of a picture that another agent's thread keeps."""
    digest = store.thread("theirs", agent="painter").artifacts.put(PICTURE, name="pictures/one")
    return f"artifact://sha256/{digest}"


def test_another_agent_s_picture_is_never_rendered() -> None:
    """By digest and by name, for every format; the control is the thread that has the picture."""
    data = base64.b64encode(PICTURE).decode()
    with perdure.open("memory:") as store:
        reference = kept(store)
        mine = store.thread("mine", agent="planner")

        for uri in (reference, "artifact://pictures/one"):
            assert not any(data in body for body in rendered(mine, uri))

        assert any(data in body for body in rendered(store.thread("theirs"), reference))


def test_the_same_picture_kept_here_is_rendered_from_here() -> None:
    """Spaces share nothing: equal content has an equal digest, and is found once it is kept here."""
    data = base64.b64encode(PICTURE).decode()
    with perdure.open("memory:") as store:
        reference = kept(store)
        mine = store.thread("mine", agent="planner")
        mine.artifacts.put(PICTURE)

        assert any(data in body for body in rendered(mine, reference))
