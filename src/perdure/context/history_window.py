"""Reads the messages of a timeline that may be shown, and no more of its history than that needs.

A timeline is read from its end.  How far back is decided on the way: to the first message of the last step's context,
if the history has its recipe; else some turns beyond the last switch; else to the beginning, or until there is more
than any window of that size could contain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from perdure.context.render.call_summaries import CallFacts
from perdure.engines.contract import Step
from perdure.errors import Forgotten
from perdure.history import reader
from perdure.history.reader import eventful
from perdure.history.space import Space
from perdure.model.digest import Digest
from perdure.model.event import (
    BackendSwitched,
    MessageAppended,
    RunStarted,
    ToolCallCompleted,
    ToolCallRequested,
)
from perdure.model.message import Message
from perdure.model.recipe import Recipe, decode_recipe
from perdure.model.run import IMPORT
from perdure.projections.transcript import MessageAt, Retractions, unclear_in

__all__ = [
    "CHARACTERS_A_TOKEN",
    "MessageRef",
    "HistoryWindow",
    "backend_of_message",
    "exchanges",
    "messages_of",
    "retrace",
    "spoken_in",
    "trace",
]

CHARACTERS_A_TOKEN = 12  # upper bound of characters for one token


class MessageRef(msgspec.Struct, frozen=True):
    """One message of a timeline, by reference, with its place."""

    said: MessageAt
    turn: int  # of the timeline, from 1
    place: tuple[int, int]  # depth of the commit, and which of its events it is
    is_earlier: bool = False  # before the last switch
    is_native: bool = False  # its calls are shown as call and result though it is earlier
    unclear: tuple[str, ...] = ()  # the calls among its results whose outcome was unknown

    @property
    def told(self) -> bool:
        """True if its calls are told in sentences."""
        return self.is_earlier and not self.is_native

    @property
    def id(self) -> str:
        """The message's id."""
        return self.said.event.id

    @property
    def role(self) -> str:
        """The role of the speaker."""
        return self.said.event.role


class HistoryWindow(msgspec.Struct, kw_only=True):
    """The last part of a timeline."""

    spoken: list[MessageRef] = []  # oldest first, up to the end, without a gap
    is_whole: bool = True  # it begins where the timeline begins
    turn: int = 0  # the number of the last turn; 0: there is none
    known: dict[str, CallFacts] = {}  # what the history says of calls before the last switch
    switched: Digest | None = None  # the commit of the last switch
    switch: BackendSwitched | None = None  # its event, if no model has answered since
    recipe: Recipe | None = None  # of the last step, if there was no switch since
    recipe_digest: Digest | None = None


class _BackwardReader:
    """Reads a timeline backwards and collects what a context needs."""

    def __init__(
        self,
        space: Space,
        turns: int,
        bytes_max: int | None,
        *,
        fresh: bool,
        is_native: Callable[[str | None], bool],
    ) -> None:
        self._space, self._turns, self._bytes_max = space, turns, bytes_max
        self._is_fresh, self._is_native = fresh, is_native
        self._line_backend: str | None = None  # the timeline's backend, as a later event says
        self._unplaced: list[str] = []  # earlier messages of models, until the timeline's backend is known
        self._makers: dict[
            str, set[str | None]
        ] = {}  # by message: its backend, and the timeline's backend then
        self.found = HistoryWindow(spoken=[], known={})
        self._telling = fresh
        self._size = 0
        self._exchanges = 0  # complete exchanges that were read, before the last switch or the end
        self._taken_back = Retractions()
        self._later: MessageRef | None = None  # the message read before, which comes later on the timeline

    def take(self, step: Step) -> bool:
        """Add one commit; True if that is far enough."""
        if step.digest == self.found.switched:
            self._telling = True
        done = False
        for index, event in self._taken_back.left(step.changeset.events):
            match event:
                case MessageAppended():
                    done = self._message(step, index, event) or done
                case BackendSwitched():
                    if not self._is_anchored:
                        self.found.switch, self.found.switched, self._telling = event, step.digest, True
                    self._place(event.to_backend)
                    self._line_backend = event.from_backend
                case RunStarted(backend=str() as backend):
                    self._place(backend)
                    self._line_backend = backend
                case ToolCallRequested() | ToolCallCompleted() if self._telling:
                    self._note(event)
                case _:
                    pass
        return done or self._is_enough() or self.is_cleared

    @property
    def is_cleared(self) -> bool:
        """True if every message before was taken back."""
        return self._taken_back.is_all

    @property
    def _is_anchored(self) -> bool:
        return self._is_fresh or self.found.recipe is not None or self.found.switch is not None

    def _message(self, step: Step, index: int, event: MessageAppended) -> bool:
        """Add a message; True if it is the first message of the recipe."""
        if event.context is not None and not self._is_anchored:
            self._remember(event.context)
        place = step.place.depth, index
        spoken = MessageRef(
            MessageAt(event, step.digest, step.commit),
            step.turn_number,
            place,
            self._telling,
            unclear=unclear_in(step.changeset) if event.role == "tool" else (),
        )
        if self._later is not None and self._later.is_earlier and begins(self._later, spoken):
            self._exchanges += 1
        self._later = spoken
        self.found.spoken.append(spoken)
        if event.role == "assistant" and spoken.is_earlier:
            self._makers[event.id] = {backend_of_message(event)}
            self._unplaced.append(event.id)
        self._size += event.size
        return self.found.recipe is not None and self.found.recipe.first == event.id

    def _place(self, backend: str | None) -> None:
        """Record the timeline's backend for the messages read since the last event that named one.

        An imported message is shown unchanged to the timeline's backend, whichever backend made it, and also when
        that backend takes over again.
        """
        for id in self._unplaced:
            self._makers[id].add(backend)
        self._unplaced = []

    def finish(self) -> HistoryWindow:
        """Return the window, oldest message first, each earlier message with how its calls are shown."""
        self._place(self._line_backend)
        recipe = self.found.recipe
        if recipe is not None:
            native = set(recipe.native)
        else:
            native = {id for id, makers in self._makers.items() if any(map(self._is_native, makers))}
        if native:
            self.found.spoken = [
                msgspec.structs.replace(each, is_native=True) if each.id in native else each
                for each in self.found.spoken
            ]
        self.found.spoken.reverse()
        return self.found

    def _remember(self, digest: Digest) -> None:
        try:
            self.found.recipe = decode_recipe(self._space.body(digest))
        except Forgotten:
            return
        self.found.recipe_digest = digest
        self.found.switched = self.found.recipe.switched

    def _note(self, event: ToolCallRequested | ToolCallCompleted) -> None:
        known = self.found.known.get(event.call, CallFacts())
        if isinstance(event, ToolCallCompleted):
            known = msgspec.structs.replace(known, reference=known.reference or event.result_ref)
        effect = known.effect or event.side_effects
        self.found.known[event.call] = msgspec.structs.replace(known, effect=effect)

    def _is_enough(self) -> bool:
        if self._bytes_max is not None and self._size > self._bytes_max:
            return True
        counted = self.found.switch is not None or self._is_fresh
        return counted and self._exchanges >= self._turns


def trace(
    space: Space,
    at: Digest | None,
    *,
    turns: int,
    room: int | None = None,
    fresh: bool = False,
    is_native: Callable[[str | None], bool] = lambda _: False,
) -> HistoryWindow:
    """Read the last part of the timeline that ends at `at`, for a window of `room` tokens; None: of any size.

    `fresh` reads for a backend that is new to the conversation: only the last `turns`.  `is_native` says for each
    backend that made calls before the last switch whether they are shown as call and result.
    """
    back = _BackwardReader(
        space, turns, None if room is None else room * CHARACTERS_A_TOKEN, fresh=fresh, is_native=is_native
    )
    found = back.found
    found.turn = space.step(at).turn_number if at is not None else 0
    found.is_whole = True
    for step in eventful(space, at):
        if back.take(step):
            found.is_whole = step.commit.first_parent is None or back.is_cleared
            break
    back.finish()
    _begin(found, turns, fresh=fresh)
    return found


def retrace(space: Space, at: Digest, recipe: Recipe, *, before: str) -> HistoryWindow:
    """Read the part of a timeline that a recipe names, up to the message `before`, which the step produced."""
    back = _BackwardReader(space, 0, None, fresh=False, is_native=lambda _: False)
    found = back.found
    found.recipe, found.switched = recipe, recipe.switched
    found.turn = space.step(at).turn_number
    for step in eventful(space, at):
        if back.take(step):
            found.is_whole = step.commit.first_parent is None or back.is_cleared
            break
    back.finish()
    end = next((at for at, each in enumerate(found.spoken) if each.id == before), len(found.spoken))
    del found.spoken[end:]
    _begin(found, 0, fresh=False)
    return found


def _begin(found: HistoryWindow, turns: int, *, fresh: bool) -> None:
    """Remove the messages before the first one that is wanted: commits are read whole."""
    first = None
    if found.recipe is not None:
        first = found.recipe.first
    elif found.switch is not None or fresh:
        groups = exchanges([each for each in found.spoken if each.is_earlier])
        if len(groups) > turns:
            first = groups[-turns][0].id
    if first is None:
        return
    at = next((at for at, each in enumerate(found.spoken) if each.id == first), 0)
    found.is_whole = found.is_whole and at == 0
    del found.spoken[:at]


def begins(message: MessageRef, before: MessageRef | None) -> bool:
    """True if an exchange begins with a message: the user speaks, and does not steer a run that is under way."""
    if message.role not in ("user", "system"):
        return False
    if before is None:
        return True
    run = message.said.commit.run
    is_steered = run is not None and not run.startswith(IMPORT) and run == before.said.commit.run
    return before.role not in ("user", "system") and not is_steered


def exchanges(spoken: Sequence[MessageRef]) -> list[list[MessageRef]]:
    """Group the messages into exchanges: an input of the user, and what followed it."""
    groups: list[list[MessageRef]] = []
    before: MessageRef | None = None
    for each in spoken:
        if not groups or begins(each, before):
            groups.append([])
        groups[-1].append(each)
        before = each
    return groups


def messages_of(space: Space, spoken: Sequence[MessageRef]) -> dict[str, Message]:
    """Read the texts of messages, by id; forgotten ones are left out."""
    entries = reader.spoken(space, [each.said for each in spoken])
    return {entry.id: entry.words for entry in entries if entry.words is not None}


def spoken_in(
    step: Step, *, is_earlier: bool, is_native: Callable[[MessageAppended], bool]
) -> Iterable[MessageRef]:
    """Yield the messages of one commit."""
    for index, event in enumerate(step.changeset.events):
        if isinstance(event, MessageAppended):
            place = step.place.depth, index
            said = MessageAt(event, step.digest, step.commit)
            native = is_earlier and event.role == "assistant" and is_native(event)
            unclear = unclear_in(step.changeset) if event.role == "tool" else ()
            yield MessageRef(said, step.turn_number, place, is_earlier, native, unclear)


def backend_of_message(event: MessageAppended) -> str | None:
    """Return the backend that produced a message; None: the message does not name it."""
    return f"{event.provider}:{event.model}" if event.provider and event.model else None
