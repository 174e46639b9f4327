"""Attention: what a run's model is shown, step by step.

A run takes the line up where it stands, adds what comes, and has a context made for every step.  If
that has become too large it is drawn anew: a checkpoint, the last turns, and what is needed of the
rest.  The message that the model says names the recipe of what it was shown.

Framing: what stands around the messages of a step, and what there is room for.

Only the agent's own words and constant words of ours are among the system words.

Open calls in words: what a model is told of a call whose result is not in its conversation.

The ledger knows more than the line: the call may wait, be under way, or have been carried out on
another line.  Only the first may still be decided; none of them is to be repeated unasked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from perdure.context.assemble import Framed, Setting, task_state
from perdure.context.budget import Budget, budget_of
from perdure.context.builder import ContextRequest, draw, fitting_note
from perdure.context.render.conversation import WAITING
from perdure.context.render.media import lost
from perdure.context.render.notes import RecalledItem
from perdure.history.space import Space
from perdure.ledger import calls, snapshot
from perdure.memory import relevant
from perdure.model.call import SETTLED, UNCLEAR, CallRecord
from perdure.model.canonical import Json
from perdure.model.checkpoint import Checkpoint
from perdure.model.commit import LedgerRead
from perdure.model.context import Context, ToolSpec
from perdure.model.digest import Digest, Object
from perdure.model.effect import Effect
from perdure.model.message import Message
from perdure.model.recipe import Frame, Sent
from perdure.providers.capabilities import Capability
from perdure.providers.contract import Loss, Model, sent_by
from perdure.providers.profile import BackendProfile, SelfDescribedModel, backend_profile, same
from perdure.runtime.agent.agent import Agent
from perdure.runtime.agent.builtin_tools import reader_spec
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.session.prompt_cache import PromptState, empty
from perdure.switching.checkpoint.derive import derive

__all__ = [
    "ModelInputBuilder",
    "artifact_reader",
    "ask",
    "ask_for",
    "budget_for",
    "build_frame",
    "recalled",
    "accepts_calls",
    "unseen_by",
    "window_of",
    "standing_in_words",
]


_QUERY_MAX = 2_000  # characters of an input by which memory is searched


def build_frame(
    agent: Agent,
    *,
    effect_max: Effect | None = None,
    shape: Any = None,
    sent: Sent | None = None,
    unseen: tuple[str, ...] = (),
) -> Frame:
    """The frame of an agent's steps; `shape` is the type that the last words are to have."""
    system = agent.instructions
    if effect_max is not None:
        system = f"{system}\n\nOn this line no call beyond {effect_max} is made; do not ask for any.".strip()
    options = dict(agent.options)
    if shape is not None:
        options["output_schema"] = msgspec.json.schema(shape)
    return Frame(system=system, tools=agent.specs, options=options, sent=sent, unseen=unseen)


def unseen_by(env: RunEnvironment, model: Model) -> tuple[str, ...]:
    """The kinds of media that a model takes none of, as far as that is known."""
    known = sent_by(model) is not None or isinstance(model, SelfDescribedModel)
    return backend_profile(model, env.models()).unseen if known else ()


def accepts_calls(env: RunEnvironment, model: Model) -> bool:
    """True if a model's format carries calls and their results, or nothing is known of it."""
    known = sent_by(model) is not None or isinstance(model, SelfDescribedModel)
    return not known or backend_profile(model, env.models()).does(Capability.TOOLS) != "none"


def artifact_reader(env: RunEnvironment, model: Model) -> ToolSpec | None:
    """The tool that reads artifacts as a model is told of it; None: the model takes no tools, or the agent has its own."""
    return reader_spec(env.agent) if accepts_calls(env, model) else None


def window_of(model: object) -> int | None:
    """How many tokens a model takes, if it says so with `window`; None: it does not say."""
    found: object = getattr(model, "window", None)
    return found if isinstance(found, int) and found > 1 else None


def budget_for(env: RunEnvironment, model: Model, frame: Frame) -> Budget:
    """What there is room for with a model."""
    return budget_of(
        model.backend, env.agent.context, frame=frame, models=env.models, window=window_of(model)
    )


def ask(
    env: RunEnvironment,
    budget: Budget,
    frame: Frame,
    at: Digest | None,
    *,
    fresh: bool = False,
    live: bool = False,
    takes_calls: bool = True,
) -> ContextRequest:
    """What is wanted for the next step after `at`, without what belongs to a turn.

    `live`: the log of calls is read as far as it goes by now, and not only as far as the commit had read it.
    `takes_calls`: the backend's format carries calls and their results.
    """
    space = env.space
    is_policy_native = env.agent.policy.earlier_calls == "native" and takes_calls

    def is_native(maker: str | None) -> bool:
        return is_policy_native or (maker is not None and same(maker, budget.backend, env.models()))

    upto: Callable[[], LedgerRead | None] = lambda: snapshot.now(space) if live else None  # noqa: E731
    return ContextRequest(
        frame=frame,
        budget=budget,
        limits=env.agent.context,
        derive=lambda: derive(space, at, to_backend=budget.backend, ledger=upto(), timeline=env.timeline),
        where=lambda call: _asked_at(space, call),
        reference=lambda call: _result_of(space, call),
        fresh=fresh,
        is_native=is_native,
        harmless=frozenset(tool.name for tool in env.agent.toolbox.values() if not tool.reach.guarded),
    )


def ask_for(
    env: RunEnvironment,
    to: BackendProfile,
    at: Digest | None,
    *,
    fresh: bool,
    shape: Any = None,
    checkpoint: Checkpoint | None = None,
) -> ContextRequest:
    """What a backend would be asked with at a commit; `checkpoint` is the one it would begin with."""
    sent = None
    if to.target is not None:
        sent = Sent(api=to.target.api, provider=to.target.provider, model=to.target.model)
    made = build_frame(env.agent, effect_max=env.effect_max, shape=shape, sent=sent, unseen=to.unseen)
    budget = budget_of(to.name, env.agent.context, frame=made, models=env.models, window=to.window)
    takes_calls = to.does(Capability.TOOLS) != "none"
    plain = ask(env, budget, made, at, fresh=fresh, takes_calls=takes_calls)
    derive: Callable[[], Checkpoint] = plain.derive if checkpoint is None else lambda: checkpoint
    return msgspec.structs.replace(
        plain,
        derive=derive,
        task=task_state(env.space, env.space.root_at(at)),
        reader=reader_spec(env.agent) if takes_calls else None,
    )


def recalled(
    env: RunEnvironment, query: str, at: Digest | None
) -> tuple[Sequence[RecalledItem], Digest | None]:
    """What the owner's memory says about an input, and its root; nothing if there is none, or nothing to look for."""
    memory, limit = env.memory, env.agent.context.memory
    if memory is None or limit < 1 or not query.strip() or memory.commit is None:
        return (), None
    found = relevant(memory, query[:_QUERY_MAX], limit=limit, line=(env.space.name, at))
    told = tuple(RecalledItem(each.reference, each.text, each.kind, each.trust) for each in found)
    return told, found.sight.root


def _asked_at(space: Space, call: str) -> str | None:
    held = calls.find(space, call)
    return held.record.label if held is not None else None


def _result_of(space: Space, call: str) -> str | None:
    held = calls.find(space, call)
    return held.record.result or held.record.evidence if held is not None else None


def standing_in_words(space: Space, call: str) -> str:
    """What is known of an open call, for a model."""
    held = calls.find(space, call)
    if held is None:
        return "What became of this call was never recorded. It may have happened. Do not simply repeat it."
    return _words(held.record)


def _words(record: CallRecord) -> str:
    if record.state == "started" or record.state in UNCLEAR:
        return "The outcome of this call is unknown. It may have happened. Do not simply repeat it."
    if record.state == "succeeded" or record.outcome == "done":
        return (
            "This call was carried out, on another line of this conversation; its result is not shown here. "
            "Do not repeat it."
        )
    if record.state in SETTLED:
        return f"This call was not carried out: it is {record.state}."
    return WAITING


class ModelInputBuilder:
    """What one run shows."""

    def __init__(self, env: RunEnvironment, *, shape: Any = None) -> None:
        """Begin with nothing; `shape` is the type that the last words are to have."""
        self._env, self._shape = env, shape
        self._prompt_state = empty(env.space)
        self._model: Model | None = None
        self._setting: Setting | None = None
        self._task: Mapping[str, Json] = {}
        self._recalled: Sequence[RecalledItem] = ()
        self.memory_root: Digest | None = None  # of the owner's memory that was looked at; None: none was
        self._note: Message | None = None
        self._unwritten: list[Message] = []  # what was heard and is not committed yet

    def listen(self, model: Model, at: Digest | None, root: Digest, said: Sequence[Message] = ()) -> None:
        """Take up the line at a commit, and what came in since; `root` is the state that the turn begins with."""
        env = self._env
        self._ready(model)
        self._look_up(said, at, root)
        self._prompt_state = env.prompt_cache.take(env.space, env.timeline, at, lambda: self._ask(at))
        self._explain()
        for message in said:
            self._prompt_state.add(message)

    def add(self, message: Message, *, written: bool = True) -> None:
        """Take one more message; `written`: it is about to be committed with its own commit."""
        self._prompt_state.add(message)
        if not written:
            self._unwritten.append(message)

    def context(self, model: Model) -> Context | None:
        """What the model is shown for its next step; None: it has become too large, and is to be drawn anew."""
        if model is not self._model:
            self._ready(model)
        around = self._around()
        if not self._prompt_state.fits(self._set, around, self._note):
            return None
        return self._prompt_state.context(around, self._note)

    def anew(self, at: Digest | None) -> tuple[Context, bool]:
        """The same, drawn anew, and whether it is within the budget then; `at` is the line's last commit."""
        kept, space = self._prompt_state.kept, self._env.space
        self._prompt_state = PromptState(space, at, draw(space, at, self._ask(at)))
        self._prompt_state.kept |= kept
        self._explain()
        for message in self._unwritten:
            self._prompt_state.add(message)
        around = self._around()
        return self._prompt_state.context(around, self._note), self._prompt_state.fits(
            self._set, around, self._note
        )

    def again(self, model: Model, at: Digest | None) -> None:
        """Take the line up anew where it stands: another backend has taken over."""
        self._ready(model)
        self._unwritten = []
        self._prompt_state = PromptState(self._env.space, at, draw(self._env.space, at, self._ask(at)))
        self._explain()

    def recipe(self) -> tuple[Digest, list[Object]]:
        """From what the last context can be made again, and the bodies that have to be kept for that."""
        assert self._model is not None
        self._unwritten = []
        memory = [each.reference for each in self._recalled]
        return self._prompt_state.recipe(self._model.backend, self._around(), self._note, memory)

    def lost(self) -> tuple[Loss, ...]:
        """What of the conversation the last context only names, because the model takes none of it."""
        return lost(self._prompt_state.conversation.messages(), self._set.frame.unseen)

    def losses(self) -> tuple[Loss, ...]:
        """What of the conversation the last context tells in words or shows in part."""
        return self._prompt_state.losses

    def give(self, at: Digest | None) -> None:
        """Keep what is shown for the next run on the line, which stands at `at`."""
        self._prompt_state.at = at
        self._env.prompt_cache.give(self._env.space, self._env.timeline, self._prompt_state)

    @property
    def _set(self) -> Setting:
        assert self._setting is not None, "a run listens before it shows anything"
        return self._setting

    def _ready(self, model: Model) -> None:
        env = self._env
        sent, window = sent_by(model), window_of(model)
        beside = (env.effect_max, self._shape, model.backend, type(model), sent, window)

        def make() -> Setting:
            frame = build_frame(
                env.agent,
                effect_max=env.effect_max,
                shape=self._shape,
                sent=sent,
                unseen=unseen_by(env, model),
            )
            is_told = window is not None or env.agent.context.window is not None
            reader = artifact_reader(env, model)
            find = lambda: budget_for(env, model, frame)  # noqa: E731
            return Setting(frame, find, is_told=is_told, reader=reader)

        self._model, self._setting = model, env.prompt_cache.setting(env.agent, beside, make)

    def _around(self) -> Framed:
        """The frame as it is shown: with our words about notes, if there are any."""
        notes = self._note is not None or self._prompt_state.is_noted
        return self._set.framed(notes=notes, reads=self._prompt_state.has_cut_results)

    def _ask(self, at: Digest | None) -> ContextRequest:
        assert self._model is not None
        takes_calls = accepts_calls(self._env, self._model)
        made = ask(self._env, self._set.budget, self._set.frame, at, live=True, takes_calls=takes_calls)
        return msgspec.structs.replace(
            made, task=self._task, recalled=self._recalled, reader=self._set.reader
        )

    def _explain(self) -> None:
        for call in self._prompt_state.conversation.open():
            self._prompt_state.explain(call.id, standing_in_words(self._env.space, call.id))

    def _look_up(self, said: Sequence[Message], at: Digest | None, root: Digest) -> None:
        """What is told beside the conversation in this turn: the task's state, and what memory says of the input."""
        query = "\n".join(message.text for message in said if message.role == "user")
        self._task = task_state(self._env.space, root)
        self._recalled, self.memory_root = recalled(self._env, query, at)
        self._note = None
        if self._task or self._recalled:
            self._note = fitting_note(self._set.budget, self._task, self._recalled)
