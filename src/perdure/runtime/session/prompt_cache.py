"""Caches the prompt of each timeline between steps, so that a step costs only what is new.

A cached prompt belongs to one commit.  For a later commit of the same timeline the messages between are
added; for any other commit, and after a switch, the prompt is built again.  A prompt knows its size in
characters: as long as any text of that size would fit, no tokens are counted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import islice
from threading import Lock

from perdure.context.assemble import Framed, Setting, body_of, context_in
from perdure.context.budget import is_small, size_of, weigh_frame
from perdure.context.builder import BuiltContext
from perdure.context.history_window import HistoryWindow
from perdure.context.render.conversation import Conversation, has_short_results
from perdure.context.render.notes import as_shown, is_plain
from perdure.engines.contract import Step
from perdure.history import reader
from perdure.history.space import Space
from perdure.model.context import Context
from perdure.model.digest import Digest, Kind, Object
from perdure.model.event import BackendSwitched, MessageRetracted
from perdure.model.message import Message, Text, decode_message, encode_message
from perdure.model.recipe import BUILDER, Recipe, encode_recipe
from perdure.projections import transcript as projection
from perdure.providers.contract import Loss
from perdure.providers.tokens import Weight

__all__ = ["PromptState", "PromptCache", "empty"]

_KEPT_MAX = 256
_BEHIND_MAX = 64
_SETTINGS_MAX = 64
_NEXT_EPOCH = 2  # later: one run has released the lease, and the next one has taken it


class PromptState:
    """What is shown of a timeline up to one commit."""

    __slots__ = (
        "_drawn",
        "_losses",
        "_recipe",
        "_recipe_of",
        "_size",
        "_space",
        "_unweighed",
        "_weight",
        "at",
        "conversation",
        "epoch",
        "has_cut_results",
        "kept",
        "unsettled",
        "words",
    )

    def __init__(self, space: Space, at: Digest | None, drawn: BuiltContext) -> None:
        """Start with the context that was built for a commit; None is before the first."""
        self._space, self._drawn = space, drawn
        self.at, self.conversation = at, drawn.conversation
        self.epoch = 0  # of the lease under which it was cached
        self._unweighed: list[Message] = list(self.conversation.messages())
        self._size = size_of(self._unweighed)  # of the messages whose tokens were not counted
        self._weight = Weight()  # of the messages whose tokens were counted
        self.words: dict[str, str] = {}  # sentences about open calls, by call
        self._losses: tuple[Loss, ...] | None = None
        self.has_cut_results = drawn.has_cut_results  # a result is shown in part whose whole can be read
        self._recipe: Object | None = None
        self._recipe_of: tuple[object, ...] = ()
        self.kept: set[Digest] = _known(drawn)  # bodies that the store has already
        # Calls that are shown with an unknown outcome; it may become known at any time.
        self.unsettled: set[str] = {call for call, settled in drawn.unclear.items() if settled is None}

    def add(self, message: Message, unclear: Sequence[str] = ()) -> None:
        """Add a message that is about to be committed; `unclear` are calls whose outcome its results leave unknown."""
        if unclear:
            self.conversation.unclear.update(unclear)
            self._drawn.unclear = {**self._drawn.unclear, **dict.fromkeys(unclear)}
            self.unsettled.update(unclear)
            self._recipe = None  # it names them
        shown = message if is_plain(message) else as_shown(self._space, _as_stored(message))
        before = self.conversation.ended_later
        self.conversation.add(shown)
        if shown.tool_results and not self.has_cut_results:
            self.has_cut_results = has_short_results(shown)
        added = [shown]
        if self.conversation.ended_later != before:
            self._recipe = None  # it names them
            added.append(self.conversation.messages()[-1])
        self._unweighed += added
        self._size += size_of(added)

    def explain(self, call: str, words: str) -> None:
        """Set the sentence that is shown in the place of a call's missing result."""
        self.conversation.explain(call, words)
        self.words[call] = words

    def fits(self, setting: Setting, framed: Framed, note: Message | None) -> bool:
        """True if all of it is within the budget; count tokens only where that is in doubt."""
        beside = framed.size + (size_of((note,)) if note is not None else 0)
        if not setting.is_told and is_small(self._size + beside) and not self._weight.tokens:
            return True
        budget = setting.budget
        if budget.room is None:
            return True
        if not self._weight.tokens and budget.certainly_holds(self._size + beside):
            return True
        around = weigh_frame(budget, framed.frame)
        if note is not None:
            around += budget.scale.message(note)
        if self._weight.tokens and budget.certainly_holds_more(around + self._weight, self._size):
            return True
        for message in self._unweighed:
            self._weight += budget.scale.message(message)
        self._unweighed, self._size = [], 0
        return budget.holds(around + self._weight)

    def context(self, framed: Framed, note: Message | None) -> Context:
        """Return the context that a model is shown."""
        return context_in(framed.frame, self.conversation.messages(), note, self._drawn.earlier)

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What the context tells in words or shows in part."""
        if self._losses is None:
            self._losses = self._drawn.losses
        return self._losses

    @property
    def is_noted(self) -> bool:
        """True if there are notes in it."""
        return self._drawn.lead is not None or self.conversation.tells

    def recipe(
        self, backend: str, framed: Framed, note: Message | None, memory: Sequence[str]
    ) -> tuple[Digest, list[Object]]:
        """Return the recipe of the context, and the bodies that the store does not have yet."""
        words: Mapping[str, str] = self._open_words() if self.words else {}
        made_of = (backend, framed, note, tuple(words.items()))
        if self._recipe is None or not _same(self._recipe_of, made_of):
            self._recipe, self._recipe_of = self._made(backend, framed, note, memory, words), made_of
        if self._recipe.digest in self.kept:
            return self._recipe.digest, []
        new = self._bodies(framed, note)
        self.kept.update(each.digest for each in new)
        return self._recipe.digest, new

    def _open_words(self) -> Mapping[str, str]:
        return {call.id: self.words[call.id] for call in self.conversation.open() if call.id in self.words}

    def _made(
        self,
        backend: str,
        framed: Framed,
        note: Message | None,
        memory: Sequence[str],
        words: Mapping[str, str],
    ) -> Object:
        drawn = self._drawn
        lead = body_of(drawn.lead).digest if drawn.lead is not None else None
        recipe = Recipe(
            builder=BUILDER,
            backend=backend,
            frame=framed.kept.digest,
            first=drawn.first,
            older=tuple(each.id for each in drawn.older),
            switched=drawn.switched,
            native=drawn.native,
            harmless=drawn.harmless,
            checkpoint=drawn.checkpoint_digest,
            lead=lead,
            before_lead=drawn.before_lead if lead is not None else 0,
            note=body_of(note).digest if note is not None else None,
            memory=tuple(memory),
            cut=dict(drawn.cuts.texts),
            cut_results=dict(drawn.cuts.results),
            stored=dict(drawn.cuts.stored),
            whole=dict(drawn.cuts.whole),
            short=dict(drawn.cuts.short),
            open=dict(words),
            unclear=dict(drawn.unclear),
            later=self.conversation.ended_later,
            earlier=drawn.earlier,
        )
        return Object.of(Kind.BODY, encode_recipe(recipe))

    def _bodies(self, framed: Framed, note: Message | None) -> list[Object]:
        assert self._recipe is not None
        notes = [body_of(each) for each in (self._drawn.lead, note) if each is not None]
        return [each for each in (framed.kept, *notes, self._recipe) if each.digest not in self.kept]


class PromptCache:
    """The prompts of the timelines that were used last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, str], PromptState] = OrderedDict()
        self._settings: OrderedDict[int, tuple[object, object, Setting]] = OrderedDict()

    def setting(self, agent: object, key: tuple[object, ...]) -> Setting | None:
        """Return what all steps of an agent share under the same key; None if it is not cached."""
        found = self._settings.get(id(agent))
        if found is None or found[0] is not agent or found[1] != key:
            return None
        return found[2]

    def keep_setting(self, agent: object, key: tuple[object, ...], setting: Setting) -> None:
        """Cache what all steps of an agent share."""
        with self._lock:
            self._settings[id(agent)] = (agent, key, setting)
            while len(self._settings) > _SETTINGS_MAX:
                self._settings.popitem(last=False)

    def take(self, space: Space, timeline: str, at: Digest | None, epoch: int) -> PromptState | None:
        """Take out the prompt of a timeline, brought up to the commit `at`; None if it has to be built.

        The caller owns it and may add to it.  `epoch` is that of its lease.  A redaction moves the lease, and so does
        a run, so unless only the last run has released it the prompt may have words that are gone.
        """
        with self._lock:
            kept = self._kept.pop((space.name, timeline), None)
        if kept is not None and epoch != kept.epoch + _NEXT_EPOCH and space.has_redactions:
            return None
        if kept is not None and kept.at == at:
            return kept
        if kept is not None:
            new = _since(space, kept.at, at)
            if new is not None and not any(map(_begins_anew, new)):
                unclear = [call for step in new for call in projection.unclear_in(step.changeset)]
                for message in _said(space, new):
                    kept.add(message, unclear)
                kept.at = at
                return kept
        return None

    def give(self, space: Space, timeline: str, prompt_state: PromptState, epoch: int) -> None:
        """Cache a prompt for the next run on the timeline; `epoch` is that of the lease of this one."""
        prompt_state.epoch = epoch
        with self._lock:
            self._kept[space.name, timeline] = prompt_state
            while len(self._kept) > _KEPT_MAX:
                self._kept.popitem(last=False)


def empty(space: Space) -> PromptState:
    """Return the prompt of a conversation without messages."""
    drawn = BuiltContext(reason="whole", conversation=Conversation(), found=HistoryWindow(), shown=[])
    return PromptState(space, None, drawn)


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """True if two recipes have the same parts; frames and notes are compared by identity, which is quick."""
    return (
        len(one) == len(other)
        and one[0] == other[0]
        and one[1] is other[1]
        and one[2] is other[2]
        and one[3] == other[3]
    )


def _known(drawn: BuiltContext) -> set[Digest]:
    recipe, digest = drawn.found.recipe, drawn.found.recipe_digest
    if recipe is None or digest is None:
        return set()
    return {each for each in (digest, recipe.frame, recipe.lead, recipe.note) if each is not None}


def _since(space: Space, old: Digest | None, new: Digest | None) -> list[Step] | None:
    """Return the commits after `old` up to `new`, oldest first; None if `old` is not shortly before it."""
    found: list[Step] = []
    for step in islice(reader.recent(space, new), _BEHIND_MAX):
        if step.digest == old:
            return found[::-1]
        found.append(step)
    return found[::-1] if old is None and len(found) < _BEHIND_MAX else None


def _begins_anew(step: Step) -> bool:
    """True if the prompt has to be built again after that commit: a switch, or a message that was taken back."""
    return any(isinstance(event, (BackendSwitched, MessageRetracted)) for event in step.changeset.events)


def _said(space: Space, steps: list[Step]) -> list[Message]:
    """Return the messages of these commits without the forgotten ones."""
    said = [one for step in steps for one in projection.said(step.digest, step.commit, step.changeset)]
    return [entry.words for entry in reader.spoken(space, said) if entry.words]


def _as_stored(message: Message) -> Message:
    """Return the message as it will be read back: lone surrogates in text become U+FFFD."""
    try:
        for block in message.content:
            if isinstance(block, Text) and not block.text.isascii():
                block.text.encode()
        for result in message.tool_results:
            for block in result.content:
                if isinstance(block, Text) and not block.text.isascii():
                    block.text.encode()
    except UnicodeEncodeError:
        raw = message.vendor_metadata
        return decode_message(
            encode_message(message), raw.encode("utf-8", "surrogatepass") if raw is not None else None
        )
    return message
