"""Advice for a person who types commands, chosen by the code of an error or a warning.

The library advises programs and names the method that helps; at a terminal the same help is a command.
`COMMANDS` has the advice for each code of which this is so.  An error of any other code shows its own advice.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from perdure.cli.output.screen import with_code_here
from perdure.cli.usage import named_store, to_be_named
from perdure.errors import PerdureError, PerdureWarning, RunFailed

__all__ = ["COMMANDS", "Subject", "advice_for", "explain", "command", "with_store"]


_COMMAND = re.compile(r"<([^<>]+)>")
_SPELLED = re.compile(r"`(perdure [^`]+)`")


class Subject(NamedTuple):
    """The thread or the agent that a command named, and its store."""

    thread: str | None = None
    agent: str | None = None  # whose own map the command was about, in the place of a thread
    store: str | None = None  # None: the store that is found without being named
    source: str | None = None  # of a copy: the store that has the threads, as --store names it
    command: str | None = None  # that was given

    @classmethod
    def of(cls, words: Sequence[str], arguments: Mapping[str, Any]) -> Subject:
        """Return the subject of a command that was typed as `words` and parsed as `arguments`."""
        agent = arguments.get("agent") if words[:1] == ["state"] else None
        thread = arguments.get("thread") if agent is None else None
        source = arguments.get("source") if words[:1] == ["copy"] else None
        return cls(
            thread=thread,
            agent=agent,
            store=named_store(words),
            source=source,
            command=next(iter(words), None),
        )


# <…> is a command, {…} a fact of the error.
COMMANDS: Mapping[str, str] = {
    "address_missing": "Give one in code that you name with --code: a Backend with its base_url.",
    "address_variable_missing": "Set {variable} in the environment.",
    "api_key_missing": "Set {variable} in the environment.",
    "api_key_not_sent": "Name its key, or whose server it is, where the code or the agent's file declares the backend.",
    "api_key_not_taken": "Leave the key out of the code.",
    "api_key_refused": "Set its key in the environment, where its SDK looks for it.",
    "backend_differs": "A thread that has begun is moved by <threads switch THREAD --to {declared}>, after a check.",
    "backend_missing": "Give it one where its code declares it; `perdure chat` takes one with --to.",
    "backend_not_given": (
        "Name the code that has it with --code, or move the thread to another with "
        "<threads switch THREAD --to BACKEND>; an interrupted run has to be ended first, with "
        "<runs cancel THREAD>."
    ),
    "backend_without_requests": "See <threads context THREAD> instead.",
    "busy": "Wait for it, or end it with <runs cancel THREAD>.",
    "call_not_found": "See what there is with <calls ls THREAD>.",
    "call_open": (
        "Decide it (<approvals ls THREAD> names it), go on with <runs resume THREAD --code MODULE:NAME>, or record its "
        "outcome with <calls resolve THREAD {call} done>, or not_done."
    ),
    "call_started": "Use <runs resume THREAD --code MODULE:NAME> or <runs cancel THREAD> first.",
    "call_undone": "Take the undo back with <threads redo THREAD>, or end its run with <runs cancel THREAD {run}>.",
    "call_waits_for_child": "Decide what the child waits for: <approvals ls> lists it.",
    "calls_not_settled": "Settle them (<calls ls THREAD> names them), or give them up with --force.",
    "child_gone": (
        "Find out what it did, and record the outcome with <calls resolve THREAD {call} done>, or not_done."
    ),
    "copied_call_undone": "Take the undo back with <threads redo THREAD>, or leave it as it is.",
    "cursor_invalid": "Give the cursor of an earlier event.",
    "decider_missing": "Say who decides with --by.",
    "document_not_found": "Put one there first with <state put THREAD {path} VALUE>.",
    "erasure_not_undone": (
        "To also take back the change before it, use <memory undo --owner {owner} --changes {changes}>."
    ),
    "failed_run_call_unclear": (
        "Settle it with <calls resolve THREAD {call} done>, or not_done, then try again with "
        "<runs resume THREAD {run} --code MODULE:NAME>."
    ),
    "failed_run_followed": (
        "<runs show THREAD {run}> lists its calls, and what they did stays done. Then take the later turns back with "
        "<threads undo THREAD>, or give the input again under another id."
    ),
    "failed_run_undone": (
        "<runs show THREAD {run}> lists its calls, and what they did stays done. Then take an undo back with "
        "<threads redo THREAD>, or give the input again under another id."
    ),
    "failure_not_recorded": (
        "<runs resume THREAD --code MODULE:NAME> goes on with it, <runs cancel THREAD> ends it."
    ),
    "file_read_only": "Change the rights; commands that only read need no more than that.",
    "held": (
        "See with <compare ORIGINAL> what was carried out there since; if nothing runs there any more, release it with "
        "<runs release THREAD>."
    ),
    "import_format_unknown": (
        "Name a file, a directory or a database of that tool, or leave --format out: it is found by the content. A saved "
        "conversation of an API needs --agent NAME instead."
    ),
    "inputs_not_begun": (
        "Let <work --code MODULE:NAME> run them, end them with <runs cancel THREAD RUN>, or give them up with --force."
    ),
    "item_expired": "Give it another end with --keep TIME, such as 30d.",
    "last_run_failed": "The last one failed: try it again with <runs resume THREAD {run} --code MODULE:NAME>.",
    "memory_item_expired": (
        "Bring it back with <memory restore {item} --owner {owner} --keep TIME>, such as 30d; "
        "<memory ls --owner {owner} --expired> lists what expired."
    ),
    "memory_item_not_found": "See what there is with <memory ls --owner {owner}>.",
    "memory_missing": "Begin threads with --owner.",
    "merge_conflict": (
        "Choose a side with --ours or --theirs, for some paths with --path PATH=ours or --path PATH=theirs, or make the "
        "values equal."
    ),
    "model_not_found": (
        "If it is new, add it to your models file: $PERDURE_MODELS, else ~/.config/perdure/models.json."
    ),
    "not_a_backend": "Give a name such as 'anthropic:…', with a provider that <providers ls> lists.",
    "not_an_ancestor": "Name one that <threads log THREAD --commits> shows after it.",
    "nothing_to_redo": (
        "Any commit can still be reached: <threads undo THREAD --to REF>, or <threads fork THREAD NAME --at REF>."
    ),
    "nothing_to_restore": (
        "Its changes are listed by <memory log {item} --owner {owner}>; --at takes the commit of one that wrote it."
    ),
    "opened_read_only": "This command reads only.",
    "parent_run_undone": (
        "Take the undo back with <threads redo {thread}>, or end the child with <runs cancel THREAD {run}>."
    ),
    "path_not_found": "See what there is with <state ls THREAD>.",
    "price_unknown": "Put the price into your models file: $PERDURE_MODELS, else ~/.config/perdure/models.json.",
    "question_not_named": "Read the question that waits with <approvals show THREAD {ticket}>, and decide it by that id.",
    "range_not_found": "See what there is with <threads turns THREAD --timeline {timeline}>.",
    "reconcile_hook_missing": "Say it yourself with <calls resolve THREAD {call} done>, or not_done.",
    "recorded_step_missing": "See what the next step would be shown with <threads context THREAD>.",
    "replay_out_of_order": (
        "Give only those after it with --since turn:{since}, or replay onto another fork: "
        "<threads fork THREAD NAME --timeline {timeline} --at REF>."
    ),
    "replayed_input_undone": (
        "Take the undo back with <threads redo THREAD --timeline {timeline}>, or replay onto another fork: "
        "<threads fork THREAD NAME --timeline {timeline}>."
    ),
    "request_not_signed": (
        "Say whose server it is where the code or the agent's file declares the backend: provider bedrock."
    ),
    "run_goes_on": "Wait again with <runs wait THREAD {run}>; one that is created needs <work --code MODULE:NAME>.",
    "run_interrupted": "<runs resume THREAD --code MODULE:NAME> finishes it, <runs cancel THREAD> ends it.",
    "run_not_found": "See what there is with <runs ls THREAD>.",
    "run_queued_behind": (
        "A worker begins it in its turn; <runs resume THREAD {run} --code MODULE:NAME> begins it now."
    ),
    "runs_held": (
        "See with <compare ORIGINAL> what was carried out there since; if nothing runs there any more, release them with "
        "<runs release --all>."
    ),
    "runs_waiting": (
        "<runs resume THREAD --code MODULE:NAME> finishes one, <runs cancel THREAD RUN> ends one, and --force gives them "
        "up."
    ),
    "run_undone": "Take the undo back with <threads redo THREAD>, or end it with <runs cancel THREAD>.",
    "server_changed": (
        "Name the code that has its Backend with --code, or move the thread on purpose with "
        "<threads switch THREAD --to {backend} --base-url {address}>; an interrupted run has to be ended first, with "
        "<runs cancel THREAD>."
    ),
    "server_not_named": "{back}To stay on that server, add {stay}. To go to the other one, add {leave}.",
    "session_not_for_thread": (
        "Name one of them with --session ID, or leave --thread out: each session becomes a thread of its own."
    ),
    "session_not_found": "Leave --session out: each session becomes a thread of its own, and the report names them.",
    "store_not_found": "Create one with <init>, or name another with --store or $PERDURE_STORE.",
    "switch_blocked": (
        "Choose another backend, or let the agent's policy pass {topics}: with spec.policy in the file of "
        "<agents apply>, or in its code."
    ),
    "switch_needs_approval": "Say who approves it with --approved-by NAME.",
    "switch_unfinished": (
        "Settle it first: <runs resume THREAD --code MODULE:NAME>, "
        "<calls reconcile THREAD CALL --code MODULE:NAME> or <calls resolve THREAD CALL done>."
    ),
    "target_newer": (
        "Restore the backup beside it with <restore {backup} --store OTHER.db>, and look at both; or set the store "
        "aside, whole, with <restore {backup} --set-aside-newer>."
    ),
    "target_backend_missing": "Name one with --to, as provider:model.",
    "thread_of_another_agent": (
        "Go on as the agent that it has, choose another id, or hand it off with "
        "<threads hand-off THREAD --to {agent}>."
    ),
    "thread_not_found": "Begin one with <threads begin THREAD --agent NAME>, or see <threads ls>.",
    "thread_removed": "Begin it again with <threads begin THREAD --agent NAME>.",
    "ticket_not_found": "See what waits with <approvals ls THREAD>.",
    "timeline_not_found": "See what there is with <threads show THREAD>.",
    "tool_not_declared": "Name the one that declares it with --code.",
    "transport_not_found": (
        "Name code with --code whose agent has a backend that takes steps itself, or register one in the entry point "
        "group '{group}'."
    ),
    "turns_invalid": "For a moment use <threads undo THREAD --to REF>.",
    "value_missing": "Give it with --value.",
    "value_not_taken": "Leave --value out.",
    "vector_package_missing": "Install it with `pip install 'perdure[memory]'`, or search by words alone with `--embed none`.",
}

_INSTEAD_OF_VERIFY = (
    "Restore a backup beside it with `perdure restore BACKUP --store OTHER.db`, or take what is sound with "
    "`perdure copy STORE NEW.db --sound`."
)
_IN_SOURCE = "See what the source has with <threads ls>."  # for a thread that is to be copied


def explain(error: PerdureError | PerdureWarning, about: Subject = Subject()) -> tuple[str, str]:  # noqa: B008  # frozen
    """Return what happened, and what to do now in commands; the second is empty if there is no advice."""
    return _naming_the_store(error.message, about), advice_for(error, about)


def advice_for(error: PerdureError | PerdureWarning, about: Subject = Subject()) -> str:  # noqa: B008  # frozen
    """Return what to do now, in commands with their thread and store.  A failed run has the advice of its cause."""
    cause = error.__cause__ if isinstance(error, RunFailed) and error.code not in COMMANDS else error
    if not isinstance(cause, PerdureError | PerdureWarning):
        cause = error
    template = COMMANDS.get(cause.code)
    if about.source is not None and cause.code == "thread_not_found":
        template, about = _IN_SOURCE, Subject(store=to_be_named(about.source))
    if template is None:
        own = about.command == "verify" and "`perdure verify`" in cause.advice
        return _naming_the_store(_INSTEAD_OF_VERIFY if own else cause.advice, about)
    facts = _Facts(cause.facts)
    if about.thread is None and isinstance(thread := facts.get("thread"), str):
        about = about._replace(thread=thread)
    parts = _COMMAND.split(template)  # every second one is a command
    for at, part in enumerate(parts):
        if at % 2:
            parts[at] = f"`{command(part.format_map(facts.quoted), about)}`"
        else:
            parts[at] = part.format_map(facts)
    return _naming_the_store("".join(parts), about)


def command(words: str, about: Subject) -> str:
    """Return a command as it can be typed: with its thread, and with its store if that was named."""
    if about.agent is not None and words.startswith("state "):
        words = words.replace("THREAD", f"--agent {shlex.quote(about.agent)}")
    elif about.thread is not None:
        words = words.replace("THREAD", shlex.quote(about.thread))
    elif words in ("runs ls THREAD", "calls ls THREAD", "approvals ls THREAD"):  # without one, of all threads
        words = words.removesuffix(" THREAD")
    if "MODULE:NAME" in words:
        threads = () if about.thread is None else (about.thread,)
        words = " ".join(with_code_here(words.split(" "), about.store, threads=threads, agent=about.agent))
    return with_store(f"perdure {words}", about.store)


def with_store(spelled: str, store: str | None) -> str:
    """Return a command that names the store, unless it does so already; None: the store is found without it."""
    return spelled if store is None or "--store" in spelled else f"{spelled} --store {shlex.quote(store)}"


def _naming_the_store(text: str, about: Subject) -> str:
    """Return `text` with the store in each command that it spells."""
    return _SPELLED.sub(lambda spelled: f"`{with_store(spelled[1], about.store)}`", text)


class _Facts(dict[str, object]):
    """Facts by name.  One that is not there is shown as a word to be replaced, such as RUN."""

    def __missing__(self, name: str) -> str:
        return name.upper()

    @property
    def quoted(self) -> _Facts:
        """Return the facts as words for a shell."""
        return _Facts({name: shlex.quote(str(value)) for name, value in self.items()})
