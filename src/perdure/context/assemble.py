"""Builds the context that a backend is shown, and rebuilds an earlier one from its recipe.

    plan(space, at, ask)          what the next step would be shown, with every item and the reason for it
    rebuilt(space, commit)        what a step was shown, byte for byte, from the recipe that its message names

Nothing here writes to the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import msgspec

from perdure.context.budget import Budget, frame_size
from perdure.context.builder import BuiltContext, ContextRequest, draw, framed
from perdure.context.history_window import retrace
from perdure.context.plan import Plan, count_of, items_of
from perdure.context.render.conversation import MessageTexts, cuts_in, lay, noted
from perdure.context.render.media import named
from perdure.context.required_messages import by_id, line
from perdure.engines.contract import Step
from perdure.errors import Forgotten, NotFound, Unsupported
from perdure.history.changes import values
from perdure.history.space import Space
from perdure.history.tree import EMPTY
from perdure.model.canonical import Json
from perdure.model.context import Context, ToolSpec
from perdure.model.digest import Digest, Kind, Object
from perdure.model.event import MessageAppended
from perdure.model.message import Message, decode_message, encode_message
from perdure.model.recipe import BUILDER, Frame, Recipe, decode_frame, decode_recipe, encode_frame
from perdure.projections.working_memory import TASK

__all__ = [
    "Framed",
    "RebuiltContext",
    "Setting",
    "body_of",
    "context_in",
    "explained",
    "plan",
    "rebuilt",
    "spoke",
    "task_state",
]


class RebuiltContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context that a step was shown, rebuilt."""

    recipe: Recipe
    frame: Frame
    context: Context
    drawn: BuiltContext


def plan(
    space: Space, at: Digest | None, ask: ContextRequest, *, explain: Callable[[str], str] | None = None
) -> Plan:
    """Plan what the next step after `at` would be shown, and why; `explain` has the words for a call without a result."""
    drawn = draw(space, at, ask)
    if explain is not None:
        for call in drawn.conversation.open():
            drawn.conversation.explain(call.id, explain(call.id))
    frame = frame_of(drawn, ask.frame, ask.reader)
    context = context_in(frame, drawn.conversation.messages(), drawn.note, drawn.earlier)
    return _planned(drawn, ask, frame, context, recipe_of(drawn, ask.budget.backend, frame))


def explained(rebuilt: RebuiltContext, ask: ContextRequest) -> Plan:
    """Return the plan of a rebuilt context; only the tokens are counted again."""
    return _planned(rebuilt.drawn, ask, rebuilt.frame, rebuilt.context, rebuilt.recipe)


def rebuilt(space: Space, commit: Digest) -> RebuiltContext:
    """Rebuild the context of the model that answered in a commit, byte for byte.

    Raises `NotFound` if no model answered there, or its message names no recipe; `Forgotten` if a part of the context
    was forgotten since.
    """
    event = spoke(space.step(commit))
    if event is None or event.context is None:
        raise NotFound(
            f"no model spoke at {commit[:12]}, or it was not recorded what it was shown; nothing was rebuilt.",
            code="context_not_recorded",
            commit=commit,
        )
    recipe = decode_recipe(space.body(event.context))
    if recipe.builder != BUILDER:
        raise Unsupported(
            f"what was shown at {commit[:12]} was laid out by rules of version {recipe.builder}, and this is version "
            f"{BUILDER}; it was not rebuilt.",
            code="context_rules_differ",
            advice="Use the release that wrote it.",
            commit=commit,
            version=recipe.builder,
        )
    frame = decode_frame(space.body(recipe.frame))
    drawn = _redrawn(space, commit, recipe, before=event.id)
    context = context_in(frame, drawn.conversation.messages(), drawn.note, recipe.earlier)
    return RebuiltContext(recipe=recipe, frame=frame, context=context, drawn=drawn)


def spoke(step: Step) -> MessageAppended | None:
    """Return the last message of a model in a commit of a run; None if there is none."""
    said = [event for event in step.changeset.events if isinstance(event, MessageAppended) and event.context]
    return said[-1] if said else None


def context_in(frame: Frame, messages: Sequence[Message], note: Message | None, earlier: int) -> Context:
    """Return the context of a frame and messages."""
    if note is not None:
        messages = noted(messages, note)
    if frame.unseen:
        messages = named(messages, frame.unseen)
    return Context(
        system=frame.system,
        messages=messages,
        tools=frame.tools,
        options=frame.options,
        earlier=earlier,
    )


def frame_of(drawn: BuiltContext, frame: Frame, reader: ToolSpec | None = None) -> Frame:
    """Return the frame of a built context: with the system words about notes, if it has notes.

    `reader` is the tool that reads artifacts; it is offered if a result is cut.
    """
    notes = drawn.lead is not None or drawn.note is not None or drawn.conversation.tells
    return framed(frame, notes=notes, reader=reader if drawn.has_cut_results else None)


def recipe_of(drawn: BuiltContext, backend: str, frame: Frame) -> Recipe:
    """Return the recipe from which the same context can be rebuilt."""
    lead = drawn.lead_digest or (body_of(drawn.lead).digest if drawn.lead is not None else None)
    return Recipe(
        builder=BUILDER,
        backend=backend,
        frame=Object.of(Kind.BODY, encode_frame(frame)).digest,
        first=drawn.first,
        older=tuple(each.id for each in drawn.older),
        switched=drawn.switched,
        native=drawn.native,
        harmless=drawn.harmless,
        checkpoint=drawn.checkpoint_digest,
        lead=lead,
        before_lead=drawn.before_lead if lead is not None else 0,
        note=body_of(drawn.note).digest if drawn.note is not None else None,
        cut=dict(drawn.cuts.texts),
        cut_results=dict(drawn.cuts.results),
        stored=dict(drawn.cuts.stored),
        whole=dict(drawn.cuts.whole),
        short=dict(drawn.cuts.short),
        unclear=dict(drawn.unclear),
        later=drawn.conversation.ended_later,
        earlier=drawn.earlier,
    )


def body_of(message: Message) -> Object:
    """Return the object that stores a note."""
    return Object.of(Kind.BODY, encode_message(message))


def _redrawn(space: Space, commit: Digest, recipe: Recipe, *, before: str) -> BuiltContext:
    found = retrace(space, commit, recipe, before=before)
    native = frozenset(recipe.native)
    on = line(space, commit, recipe.switched, fresh=False, is_native=lambda event: event.id in native)
    older = tuple(by_id(on, recipe.older)) if recipe.older else ()
    lead = decode_message(space.body(recipe.lead)) if recipe.lead is not None else None
    note = decode_message(space.body(recipe.note)) if recipe.note is not None else None
    shown = [*older, *found.spoken]
    cuts = cuts_in(recipe)
    words = MessageTexts(
        space, lambda each: {call: recipe.unclear[call] for call in each.unclear if call in recipe.unclear}
    )
    laid = lay(
        words,
        shown,
        lead=lead,
        known=found.known,
        cuts=cuts,
        harmless=recipe.harmless,
        announced=recipe.later,
        before_lead=recipe.before_lead,
    )
    for each in shown:
        if each.id not in laid.spans:
            raise Forgotten(f"message '{each.id}', which was shown then,", "a policy removed it since")
    for call, words in recipe.open.items():
        laid.conversation.explain(call, words)
    is_whole = recipe.first is None and lead is None and recipe.switched is None
    return BuiltContext(
        reason="whole" if is_whole else "carried",
        conversation=laid.conversation,
        found=found,
        shown=shown,
        first=recipe.first,
        older=older,
        cuts=cuts,
        lead=lead,
        lead_digest=recipe.lead,
        before_lead=recipe.before_lead,
        note=note,
        checkpoint_digest=recipe.checkpoint,
        switched=recipe.switched,
        unclear=recipe.unclear,
        earlier=recipe.earlier,
        spans=laid.spans,
        history=laid.history,
    )


def _planned(
    drawn: BuiltContext, ask: ContextRequest, frame: Frame, context: Context, recipe: Recipe
) -> Plan:
    items = tuple(items_of(drawn, ask, frame))
    count, margin = count_of(context, ask.budget)
    off = count - sum(item.tokens for item in items if item.included)
    return Plan(
        backend=ask.budget.backend,
        window=ask.budget.window,
        reserved=ask.budget.reserved,
        items=items,
        context=context,
        left_out=drawn.left_out,
        omitted=drawn.omitted,
        margin=max(0, margin + off),
        recipe=recipe,
        history=drawn.history,
        calls_in_words=drawn.conversation.calls_in_words,
        calls_native=drawn.calls_native,
        cuts=drawn.cut_texts,
        losses=drawn.losses,
    )


class Framed(msgspec.Struct, frozen=True, kw_only=True):
    """A frame as it is stored, and an upper bound of its size."""

    frame: Frame
    kept: Object
    size: int

    @classmethod
    def of(cls, frame: Frame, *, notes: bool, reader: ToolSpec | None) -> Framed:
        """Encode a frame with the system words about notes, if it has any, and the tool that reads artifacts, if any."""
        whole = framed(frame, notes=notes, reader=reader)
        return cls(frame=whole, kept=Object.of(Kind.BODY, encode_frame(whole)), size=frame_size(whole))


class Setting:
    """What the steps of an agent with one model share: the frame, and the token budget, computed when it is needed."""

    __slots__ = ("_budget", "_find", "_framed", "frame", "is_told", "reader")

    def __init__(
        self, frame: Frame, find: Callable[[], Budget], *, is_told: bool, reader: ToolSpec | None = None
    ) -> None:
        """Begin with a frame; `find` computes the budget, `is_told` says that the program declared a window.

        `reader` is the tool that reads artifacts; None: it cannot be offered.
        """
        self.frame, self._find, self.is_told, self.reader = frame, find, is_told, reader
        self._framed: dict[tuple[bool, bool], Framed] = {}
        self._budget: Budget | None = None

    @property
    def budget(self) -> Budget:
        """The token budget of a request."""
        if self._budget is None:
            self._budget = self._find()
        return self._budget

    def framed(self, *, notes: bool, reads: bool) -> Framed:
        """Return the encoded frame, with the system words about notes, and with the tool that `reads` artifacts."""
        found = self._framed.get((notes, reads))
        if found is None:
            reader = self.reader if reads else None
            found = self._framed[notes, reads] = Framed.of(self.frame, notes=notes, reader=reader)
        return found


_PATHS_MAX = 32
_BYTES_MAX = 16 * 1024  # of one value; a larger one is shown by its size alone


def task_state(space: Space, root: Digest) -> dict[str, Json]:
    """Read the task's state under `/task/`, sorted by path, each value bounded; empty if there is none."""
    found: dict[str, Json] = {}
    tree = space.tree(root)
    if root == EMPTY or not tree.count(TASK):
        return found
    for entry in islice(tree.entries(TASK), _PATHS_MAX):
        if entry.size > _BYTES_MAX:
            found[entry.path] = f"({entry.size:,} bytes, not shown)"
            continue
        try:
            value = values.read(space, entry)
        except Forgotten:
            continue
        found[entry.path] = f"({entry.size:,} bytes)" if isinstance(value, bytes) else value
    return found
