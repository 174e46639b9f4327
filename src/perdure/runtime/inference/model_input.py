"""Builds what the model of a run is shown, step by step.

A run reads the conversation of its timeline once, adds each message, and has a context made for every step.
If that has become too large it is built again: a checkpoint, the last turns, and what is needed of the
rest.  The message that the model writes names the recipe of what it was shown.

Only the agent's own instructions and constant sentences of ours are among the system words.

The model is also told about calls whose results are not in its conversation.  The ledger knows more than the
timeline: such a call may wait, run, or have been made on another timeline.  None of them should be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from perdure.context.assemble import Framed, Setting, task_state
from perdure.context.budget import budget_of
from perdure.context.builder import ContextRequest, draw, fitting_note
from perdure.context.render.conversation import WAITING
from perdure.context.render.media import lost
from perdure.context.render.notes import RecalledItem
from perdure.history.space import Space
from perdure.ledger import calls, results
from perdure.memory import MemoryForRun
from perdure.model.call import SETTLED, UNCLEAR, CallRecord, CallState
from perdure.model.canonical import Json
from perdure.model.context import Context
from perdure.model.digest import Digest, Object
from perdure.model.message import Message, Text
from perdure.model.recipe import Frame
from perdure.providers.capabilities import Capability
from perdure.providers.contract import Loss, Model, sent_by
from perdure.providers.profile import BackendProfile, SelfDescribedModel, backend_profile
from perdure.runtime.agent.agent import Agent
from perdure.runtime.agent.builtin_tools import reader_spec
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.session.prompt_cache import PromptState, empty
from perdure.runtime.tools.result import DONE_ELSEWHERE, NEVER_RECORDED, OUTCOME_UNKNOWN
from perdure.switching.target_context import AgentView, context_request, memory_for, recalled_items

__all__ = ["ModelInputBuilder", "agent_view", "is_bare", "open_call_words"]

_QUERY_MAX = 2_000  # characters of an input by which memory is searched


def agent_view(env: RunEnvironment, *, shape: Any = None) -> AgentView:
    """Return the agent as far as it decides what a backend is shown; `shape` is the type of the last message."""
    agent = env.agent
    tools = agent.toolbox.values()
    return AgentView(
        space=env.space,
        timeline=env.timeline,
        frame=_frame(env, shape),
        limits=agent.context,
        models=env.models,
        is_native=agent.policy.earlier_calls == "native",
        harmless=frozenset(tool.name for tool in tools if not tool.reach.guarded),
        mcp=frozenset(tool.name for tool in tools if tool.origin == "mcp"),
        reader=reader_spec(agent),
        is_bare=is_bare(agent),
        memory=env.memory,
    )


def is_bare(agent: Agent) -> bool:
    """True if only the agent's name is known, and not its code."""
    return agent.backend is None and not agent.tools and not agent.instructions


def _frame(env: RunEnvironment, shape: Any) -> Frame:
    agent, effect_max = env.agent, env.effect_max
    system = agent.instructions
    if effect_max is not None:
        system = f"{system}\n\nOn this line no call beyond {effect_max} is made; do not ask for any.".strip()
    options = dict(agent.options)
    if shape is not None:
        options["output_schema"] = msgspec.json.schema(shape)
    return Frame(system=system, tools=agent.specs, options=options)


def _profile(env: RunEnvironment, model: Model) -> BackendProfile | None:
    """Return what is known of a model; None if nothing is: then it counts as able to take everything."""
    is_known = sent_by(model) is not None or isinstance(model, SelfDescribedModel)
    return backend_profile(model, env.models()) if is_known else None


def _takes_calls(profile: BackendProfile | None) -> bool:
    return profile is None or profile.does(Capability.TOOLS) != "none"


def _window_of(model: object) -> int | None:
    """Return how many tokens a model takes, if it has a `window`; None if it does not say."""
    found: object = getattr(model, "window", None)
    return found if isinstance(found, int) and found > 1 else None


def open_call_words(space: Space, call: str) -> str:
    """Say what is known of an open call, for a model."""
    found = calls.find(space, call)
    if found is None:
        return NEVER_RECORDED
    stated = results.shown(space, found.record) if found.record.state == "resolved" else None
    if stated is None:
        return _state_words(found.record)
    said = "\n".join(block.text for block in stated.content if isinstance(block, Text))
    return f"{said}\nDo not repeat it." if found.record.outcome == "done" else said


def _state_words(record: CallRecord) -> str:
    if record.state == "started" or record.state in UNCLEAR:
        return OUTCOME_UNKNOWN
    if record.state == "succeeded" or record.outcome == "done":
        return DONE_ELSEWHERE
    if record.state in SETTLED:
        return f"This call was not carried out: it is {record.state}."
    return WAITING


class ModelInputBuilder:
    """Builds the contexts of one run."""

    def __init__(self, env: RunEnvironment, *, shape: Any = None) -> None:
        """Start without a conversation, which has to be read first; `shape` is the type that the last message must have."""
        self._env, self._shape = env, shape
        self.epoch = 0  # of the run's lease, which the run sets before the conversation is read
        self._prompt_state: PromptState  # from `read_conversation` on
        self._model: Model | None = None
        self._setting: Setting  # from `read_conversation` on, too
        self._framed: Framed  # that of the last context
        self._task: Mapping[str, Json] = {}
        self._memory = MemoryForRun()
        self._recalled: Sequence[RecalledItem] = ()  # what is shown of it
        self.memory_root: Digest | None = None  # of the owner's memory that was searched; None: none was
        self._note: Message | None = None
        self._settled: dict[str, CallState] = {}  # calls of the run that were settled, and how
        self._unwritten: list[Message] = []  # queued messages that were taken in and are not committed yet

    def read_conversation(
        self, model: Model, at: Digest | None, root: Digest, said: Sequence[Message] = ()
    ) -> None:
        """Read the conversation at a commit, and add the messages `said`; `root` is the state at the start of the turn."""
        env = self._env
        self._ready(model)
        self._look_up(said, at, root)
        cached = env.prompt_cache.take(env.space, env.timeline, at, self.epoch)
        self._prompt_state = cached or self._drawn(at)
        self._explain()
        for message in said:
            self._prompt_state.add(message)

    @property
    def settled(self) -> Mapping[str, CallState]:
        """The calls of the run, and how they ended."""
        return self._settled

    def add(self, message: Message, *, written: bool = True, records: Sequence[CallRecord] = ()) -> None:
        """Add a message; `written` is False for one that a later commit will hold.  `records` are those of its calls."""
        unclear = [each.id for each in records if each.state in UNCLEAR] if records else ()
        self._prompt_state.add(message, unclear)
        for each in records:
            self._settled[each.id] = each.state
        if not written:
            self._unwritten.append(message)

    def context(self, model: Model) -> Context | None:
        """Return what the model is shown for its next step; None if `rebuild` has to look at it first.

        It does so if the context has become too large, or shows calls whose outcome was unknown.
        """
        if model is not self._model:
            self._ready(model)
        return None if self._prompt_state.unsettled else self._current()

    def _current(self) -> Context | None:
        """Return the context as it is; None if it has become too large."""
        prompt_state, around = self._prompt_state, self._around()
        self._framed = around
        if not prompt_state.fits(self._setting, around, self._note):
            return None
        return prompt_state.context(around, self._note)

    def _is_outdated(self) -> bool:
        """True if a call was settled since that is shown with an unknown outcome."""
        found = calls.find_many(self._env.space, sorted(self._prompt_state.unsettled))
        return any(each is not None and each.record.state in SETTLED for each in found)

    def rebuild(self, at: Digest | None) -> tuple[Context, bool]:
        """Build the context again at the last commit, if it has to be; return it, and whether it is within the budget."""
        if self._prompt_state.unsettled and not self._is_outdated():
            current = self._current()
            if current is not None:
                return current, True
        kept = self._prompt_state.kept
        self._prompt_state = self._drawn(at)
        self._prompt_state.kept |= kept
        self._explain()
        for message in self._unwritten:
            self._prompt_state.add(message)
        around = self._framed = self._around()
        return self._prompt_state.context(around, self._note), self._prompt_state.fits(
            self._setting, around, self._note
        )

    def switch_to(self, model: Model, at: Digest | None) -> None:
        """Build the conversation again at a commit, for another backend that has taken over."""
        self._ready(model)
        self._unwritten = []
        self._prompt_state = self._drawn(at)
        self._explain()

    def recipe(self) -> tuple[Digest, list[Object]]:
        """Return the recipe of the last context, and the bodies that the store needs to rebuild it."""
        assert self._model is not None
        self._unwritten = []
        memory = [each.reference for each in self._recalled] if self._recalled else ()
        return self._prompt_state.recipe(self._model.backend, self._framed, self._note, memory)

    def lost(self) -> tuple[Loss, ...]:
        """Return the media that the last context only names, because the model takes none of that kind."""
        unseen = self._setting.frame.unseen
        return lost(self._prompt_state.conversation.messages(), unseen) if unseen else ()

    def losses(self) -> tuple[Loss, ...]:
        """Return what the last context tells in words or shows in part."""
        return self._prompt_state.losses

    def cache(self, at: Digest | None) -> None:
        """Cache the prompt for the next run on the timeline, whose head is at `at`."""
        self._prompt_state.at = at
        env = self._env
        env.prompt_cache.give(env.space, env.timeline, self._prompt_state, self.epoch)

    @cached_property
    def _view(self) -> AgentView:  # most steps need none: the setting is cached and the prompt only grows
        return agent_view(self._env, shape=self._shape)

    def _ready(self, model: Model) -> None:
        """Use the frame and the budget of a model from here on."""
        env = self._env
        sent, window = sent_by(model), _window_of(model)
        key = (env.effect_max, self._shape, model.backend, type(model), sent, window)
        setting = env.prompt_cache.setting(env.agent, key)
        if setting is None:
            profile = _profile(env, model)
            unseen = () if profile is None else profile.unseen
            frame = msgspec.structs.replace(self._view.frame, sent=sent, unseen=unseen)
            limits, models = env.agent.context, env.models
            setting = Setting(
                frame,
                # Most conversations are far too small to need a budget, so it is found when it is needed.
                lambda: budget_of(model.backend, limits, frame=frame, models=models, window=window),
                is_told=window is not None or limits.window is not None,
                reader=self._view.reader if _takes_calls(profile) else None,
            )
            env.prompt_cache.keep_setting(env.agent, key, setting)
        self._model, self._setting = model, setting

    def _around(self) -> Framed:
        """Return the frame with our sentences about notes and cut results, if there are any."""
        notes = self._note is not None or self._prompt_state.is_noted
        return self._setting.framed(notes=notes, reads=self._prompt_state.has_cut_results)

    def _request(self, at: Digest | None) -> ContextRequest:
        assert self._model is not None
        takes_calls = _takes_calls(_profile(self._env, self._model))
        budget, frame = self._setting.budget, self._setting.frame
        request = context_request(self._view, budget, frame, at, live=True, takes_calls=takes_calls)
        return msgspec.structs.replace(
            request,
            task=self._task,
            recalled=recalled_items(self._memory),
            pins_left_out=self._memory.left_out,
            reader=self._setting.reader,
        )

    def _drawn(self, at: Digest | None) -> PromptState:
        """Build the prompt of the conversation up to a commit."""
        space = self._env.space
        return empty(space) if at is None else PromptState(space, at, draw(space, at, self._request(at)))

    def _explain(self) -> None:
        for call in self._prompt_state.conversation.open():
            self._prompt_state.explain(call.id, open_call_words(self._env.space, call.id))

    def _look_up(self, said: Sequence[Message], at: Digest | None, root: Digest) -> None:
        """Read what is shown beside the conversation in this turn: the task's state, and what is remembered."""
        self._task = task_state(self._env.space, root)
        env, recalled = self._env, ()
        if env.memory is not None:
            query = "\n".join(message.text for message in said if message.role == "user")
            self._memory = memory_for(env.memory, query[:_QUERY_MAX], env.agent.context, (env.space.name, at))
            self.memory_root = self._memory.root
            recalled = recalled_items(self._memory)
        self._note, self._recalled = None, ()
        if self._task or recalled:
            fitting = fitting_note(self._setting.budget, self._task, recalled, self._memory.left_out)
            self._note, self._recalled = fitting
