"""Attention: what a run's model is shown, step by step.

A run takes the line up where it stands, adds what comes, and has a context made for every step.  If
that has become too large it is drawn anew: a checkpoint, the last turns, and what is needed of the
rest.  The message that the model says names the recipe of what it was shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perdure.context.framed import Framed, Setting
from perdure.context.notes import Recalled
from perdure.context.task import task_state
from perdure.context.tiers import Ask, draw, fitting_note
from perdure.context.unseen import lost
from perdure.model.canonical import Json
from perdure.model.context import Context
from perdure.model.digest import Digest, Object
from perdure.model.message import Message
from perdure.providers.contract import Loss, Model, sent_by
from perdure.runtime import framing
from perdure.runtime.ground import Ground
from perdure.runtime.openness import standing_in_words
from perdure.runtime.talks import Talk, empty

__all__ = ["Attention"]


class Attention:
    """What one run shows."""

    def __init__(self, ground: Ground, *, shape: Any = None) -> None:
        """Begin with nothing; `shape` is the type that the last words are to have."""
        self._ground, self._shape = ground, shape
        self._talk = empty(ground.space)
        self._model: Model | None = None
        self._setting: Setting | None = None
        self._task: Mapping[str, Json] = {}
        self._recalled: Sequence[Recalled] = ()
        self.memory_root: Digest | None = None  # of the owner's memory that was looked at; None: none was
        self._note: Message | None = None
        self._unwritten: list[Message] = []  # what was heard and is not committed yet

    def listen(self, model: Model, at: Digest | None, root: Digest, said: Sequence[Message] = ()) -> None:
        """Take up the line at a commit, and what came in since; `root` is the state that the turn begins with."""
        ground = self._ground
        self._ready(model)
        self._look_up(said, at, root)
        self._talk = ground.talks.take(ground.space, ground.timeline, at, lambda: self._ask(at))
        self._explain()
        for message in said:
            self._talk.add(message)

    def add(self, message: Message, *, written: bool = True) -> None:
        """Take one more message; `written`: it is about to be committed with its own commit."""
        self._talk.add(message)
        if not written:
            self._unwritten.append(message)

    def context(self, model: Model) -> Context | None:
        """What the model is shown for its next step; None: it has become too large, and is to be drawn anew."""
        if model is not self._model:
            self._ready(model)
        around = self._around()
        if not self._talk.fits(self._set, around, self._note):
            return None
        return self._talk.context(around, self._note)

    def anew(self, at: Digest | None) -> tuple[Context, bool]:
        """The same, drawn anew, and whether it is within the budget then; `at` is the line's last commit."""
        kept, space = self._talk.kept, self._ground.space
        self._talk = Talk(space, at, draw(space, at, self._ask(at)))
        self._talk.kept |= kept
        self._explain()
        for message in self._unwritten:
            self._talk.add(message)
        around = self._around()
        return self._talk.context(around, self._note), self._talk.fits(self._set, around, self._note)

    def again(self, model: Model, at: Digest | None) -> None:
        """Take the line up anew where it stands: another backend has taken over."""
        self._ready(model)
        self._unwritten = []
        self._talk = Talk(self._ground.space, at, draw(self._ground.space, at, self._ask(at)))
        self._explain()

    def recipe(self) -> tuple[Digest, list[Object]]:
        """From what the last context can be made again, and the bodies that have to be kept for that."""
        assert self._model is not None
        self._unwritten = []
        memory = [each.reference for each in self._recalled]
        return self._talk.recipe(self._model.backend, self._around(), self._note, memory)

    def lost(self) -> tuple[Loss, ...]:
        """What of the conversation the last context only names, because the model takes none of it."""
        return lost(self._talk.conversation.messages(), self._set.frame.unseen)

    def losses(self) -> tuple[Loss, ...]:
        """What of the conversation the last context tells in words or shows in part."""
        return self._talk.losses

    def give(self, at: Digest | None) -> None:
        """Keep what is shown for the next run on the line, which stands at `at`."""
        self._talk.at = at
        self._ground.talks.give(self._ground.space, self._ground.timeline, self._talk)

    @property
    def _set(self) -> Setting:
        assert self._setting is not None, "a run listens before it shows anything"
        return self._setting

    def _ready(self, model: Model) -> None:
        ground = self._ground
        sent, window = sent_by(model), framing.window_of(model)
        beside = (ground.effect_max, self._shape, model.backend, type(model), sent, window)

        def make() -> Setting:
            frame = framing.frame(
                ground.agent,
                effect_max=ground.effect_max,
                shape=self._shape,
                sent=sent,
                unseen=framing.unseen_by(ground, model),
            )
            is_told = window is not None or ground.agent.context.window is not None
            reader = framing.artifact_reader(ground, model)
            find = lambda: framing.budget_for(ground, model, frame)  # noqa: E731
            return Setting(frame, find, is_told=is_told, reader=reader)

        self._model, self._setting = model, ground.talks.setting(ground.agent, beside, make)

    def _around(self) -> Framed:
        """The frame as it is shown: with our words about notes, if there are any."""
        notes = self._note is not None or self._talk.is_noted
        return self._set.framed(notes=notes, reads=self._talk.has_cut_results)

    def _ask(self, at: Digest | None) -> Ask:
        assert self._model is not None
        takes_calls = framing.takes_calls(self._ground, self._model)
        made = framing.ask(
            self._ground, self._set.budget, self._set.frame, at, live=True, takes_calls=takes_calls
        )
        return msgspec.structs.replace(
            made, task=self._task, recalled=self._recalled, reader=self._set.reader
        )

    def _explain(self) -> None:
        for call in self._talk.conversation.open():
            self._talk.explain(call.id, standing_in_words(self._ground.space, call.id))

    def _look_up(self, said: Sequence[Message], at: Digest | None, root: Digest) -> None:
        """What is told beside the conversation in this turn: the task's state, and what memory says of the input."""
        query = "\n".join(message.text for message in said if message.role == "user")
        self._task = task_state(self._ground.space, root)
        self._recalled, self.memory_root = framing.recalled(self._ground, query, at)
        self._note = None
        if self._task or self._recalled:
            self._note = fitting_note(self._set.budget, self._task, self._recalled)
