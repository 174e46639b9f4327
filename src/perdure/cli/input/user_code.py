"""Code of the user's: the agent that `--code` names, loaded when a command needs its tools, and only then.

What that code prints goes to the error stream, so that the answer of a command stays what it is.

Where an agent is declared: what to write after `--code`, found by reading the files here, never by running them.

Only the program that declares an agent has its tools.  If `--code` is missing, or names a file, the error says what
to type.
"""

from __future__ import annotations

import ast
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NamedTuple, TypeAlias, cast

from cyclopts import Parameter

from perdure.errors import Invalid, PerdureError
from perdure.model.names import did_you_mean
from perdure.runtime.agent.agent import Agent
from perdure.runtime.tools.tool import Tool
from perdure.store.open_store import open as open_store
from perdure.store.store import Store
from perdure.store.thread import Thread

__all__ = [
    "Code",
    "DeclaredNames",
    "OptionalCode",
    "SwitchCode",
    "found_in",
    "function_in",
    "with_code",
    "Declared",
    "as_module",
    "code_here",
    "declared_here",
    "what_to_type",
]


_FILES_MAX = 50
_BYTES_MAX = 256 * 1024
_SHOWN = 3
_THREADS_MAX = 20  # whose agents are looked up for a hint


class Declared(NamedTuple):
    """An agent that a file here declares."""

    code: str  # as --code takes it
    agent: str


def what_to_type(agent: str | None = None) -> str:
    """Return a sentence that says what to write after `--code` for that agent; None: for any agent."""
    found = list(islice(declared_here(), _FILES_MAX))
    fits = list(
        dict.fromkeys(each.code for each in found if agent in (None, each.agent))
    )  # a list has several
    if fits and agent is None:  # another agent may be meant, declared where the files do not show it
        return f"Write --code MODULE:NAME, such as {' or '.join(fits[:_SHOWN])}."
    if fits:
        return f"Write --code {' or --code '.join(fits[:_SHOWN])}."
    hint = did_you_mean(agent or "", (each.agent for each in found))
    return f"{hint}Write --code MODULE:NAME; for an agent that app.py keeps as planner, --code app:planner."


def code_here(place: str, *, threads: Iterable[str] = (), agent: str | None = None) -> str | None:
    """Return what to write after `--code` for that agent, or for the agents of those threads of the store at `place`.

    None: they are declared nowhere here or in several places, or it is not known which agents they are.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    for each in declared_here():
        found[each.code].add(each.agent)
    wanted = {agent} if agent is not None else set[str]()
    with suppress(PerdureError):  # what is said beside is the answer, and this a hint
        if found and agent is None:
            with open_store(place, read_only=True) as store:
                wanted = {store.thread(each).agent for each in islice(threads, _THREADS_MAX)}
    fits = [code for code, agents in found.items() if wanted and wanted <= agents]
    return fits[0] if len(fits) == 1 else None


def as_module(code: str) -> str | None:
    """Return `code` with a module in place of a file: app.py:planner is app:planner; None if it names no file."""
    file, colon, name = code.partition(":")
    parts = Path(file).parts
    if not file.endswith(".py") or not all(part.removesuffix(".py").isidentifier() for part in parts):
        return None
    module = ".".join(parts).removesuffix(".py")
    if name:
        return f"{module}{colon}{name}"
    within = [each.code for each in _declared_in(Path(file), module)]
    return within[0] if len(within) == 1 else module


def declared_here() -> Iterator[Declared]:
    """Return the agents that the Python files of this directory declare as variables."""
    names = sorted(each.name for each in islice(os.scandir(), 1_000) if each.name.endswith(".py"))
    for name in names[:_FILES_MAX]:
        module = name.removesuffix(".py")
        if module.isidentifier():
            yield from _declared_in(Path(name), module)


def _declared_in(file: Path, module: str) -> Iterator[Declared]:
    try:
        if file.stat().st_size > _BYTES_MAX:
            return
        source = file.read_bytes()
        if b"Agent(" not in source:
            return
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for statement in _statements(tree.body):
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
            several = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
            for agent in filter(None, map(_declared_agent, several)):
                if isinstance(target, ast.Name):
                    yield Declared(f"{module}:{target.id}", agent)


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements at the top level of a module, also those inside `with`, `if` and `try`."""
    for statement in body:
        yield statement
        for inside in ("body", "orelse", "finalbody"):
            if isinstance(statement, ast.With | ast.If | ast.Try):
                yield from _statements(getattr(statement, inside, ()))


def _declared_agent(value: ast.expr) -> str | None:
    """Return the name in Agent("name", …); None for anything else."""
    if not isinstance(value, ast.Call):
        return None
    called = value.func
    name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", None)
    given = value.args[0] if value.args else next((k.value for k in value.keywords if k.arg == "name"), None)
    if name == "Agent" and isinstance(given, ast.Constant) and isinstance(given.value, str):
        return given.value
    return None


_HELP = "Where the agent is declared: an Agent, or several of them, by module and name"

Code: TypeAlias = Annotated[
    str | None,
    Parameter(name="--code", metavar="MODULE:NAME", help=f"{_HELP}; it has to be given", show_default=False),
]
OptionalCode: TypeAlias = Annotated[
    str | None,
    Parameter(name="--code", metavar="MODULE:NAME", help=f"{_HELP}; its tool then checks the arguments"),
]

SwitchCode: TypeAlias = Annotated[
    str | None,
    Parameter(name="--code", metavar="MODULE:NAME", help=f"{_HELP}; its tools and policy then count"),
]


class DeclaredNames(NamedTuple):
    """What code declares, by name."""

    agents: Mapping[str, Agent] = {}
    tools: Mapping[str, Tool] = {}


@contextmanager
def with_code(
    store: Store, id: str, code: str | None, timeline: str, *, needed: bool = False
) -> Generator[Thread]:
    """Open a timeline of a thread with the agent that `code` names; None: without its tools, unless they are `needed`.

    Raises `NotFound` if there is no such thread, which is never begun here, and `Invalid` if the
    code cannot be loaded or holds another agent.
    """
    thread = store.thread(id, timeline=timeline)
    if code is None and needed:
        raise Invalid(
            f"this needs --code: what the tools of agent '{thread.agent}' do is known only to the program that "
            "declares it; nothing was done.",
            code="code_missing",
            advice=what_to_type(thread.agent),
            agent=thread.agent,
        )
    if code is None:
        yield thread
        return
    with redirect_stdout(sys.stderr):
        agent = _agent(code, thread)
        yield store.thread(id, agent=agent, timeline=timeline)


def found_in(code: str) -> DeclaredNames:
    """Return the agents and tools that `code` names; raises `Invalid` if it cannot be loaded."""
    with redirect_stdout(sys.stderr):
        things = list(_things(_loaded(code)))
    agents = {each.name: each for each in things if isinstance(each, Agent)}
    tools = {each.name: each for agent in agents.values() for each in agent.toolbox.values()}
    tools |= {each.name: each for each in things if isinstance(each, Tool)}
    return DeclaredNames(agents, tools)


def function_in(code: str) -> Callable[..., Any]:
    """Return the function that `code` names; raises `Invalid` if it cannot be loaded or called."""
    with redirect_stdout(sys.stderr):
        found = _loaded(code)
    if not callable(found):
        raise Invalid(
            f"{code} is no function; nothing was done.", code="function_not_in_code", code_name=code
        )
    return cast("Callable[..., Any]", found)


def _agent(code: str, thread: Thread) -> Agent:
    found = found_in(code).agents
    if not found:
        raise Invalid(
            f"--code {code} holds no Agent; nothing was done.",
            code="agent_not_in_code",
            advice=what_to_type(thread.agent),
            code_name=code,
            agent=thread.agent,
        )
    if thread.agent not in found:
        others = ", ".join(f"'{name}'" for name in sorted(found))
        raise Invalid(
            f"--code {code} holds agent {others}, but thread '{thread.id}' belongs to agent '{thread.agent}'; "
            "nothing was done.",
            code="agent_not_in_code",
            advice=what_to_type(thread.agent),
            code_name=code,
            agent=thread.agent,
        )
    return found[thread.agent]


def _loaded(code: str) -> object:
    """Return the object that `code` names; a module alone means everything in it."""
    module, _, name = code.partition(":")
    if (meant := as_module(code)) is not None:
        raise Invalid(
            f"--code names a module, not a file such as {code}; nothing was done.",
            code="code_not_found",
            advice=f"Write --code {meant}.",
            code_name=code,
        )
    if not all(part.isidentifier() for part in module.split(".")):
        raise Invalid(
            f"--code {code!r} is not module:name; nothing was done.",
            code="code_not_found",
            advice=what_to_type(),
            code_name=code,
        )
    here = os.getcwd()  # what Python itself would have put there
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = import_module(module)
        for part in filter(None, name.split(".")):
            if not hasattr(found, part):
                raise _Missing(found, part)
            found = getattr(found, part)
    except _Missing as missing:
        hint = did_you_mean(missing.name, missing.others).rstrip() or what_to_type()
        raise Invalid(
            f"--code {code}: there is no '{missing.name}' in it; nothing was done. {hint}".rstrip(),
            code="code_not_found",
            code_name=code,
        ) from None
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise _unloaded(code, error) from error
        raise Invalid(
            f"--code {code}: there is no module '{module}' here; nothing was done.",
            code="code_not_found",
            advice=what_to_type(),
            code_name=code,
        ) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # others' code: whatever it does, it is reported as theirs
        raise _unloaded(code, error) from error
    return found


class _Missing(Exception):
    """A name that is not in what code names."""

    def __init__(self, inside: object, name: str) -> None:
        self.name = name
        self.others = [
            each
            for each, value in getattr(inside, "__dict__", {}).items()
            if isinstance(value, Agent | list | tuple | dict)
        ]
        super().__init__(name)


def _unloaded(code: str, error: BaseException) -> Invalid:
    why = str(error).rstrip(". ")
    return Invalid(
        f"--code {code} cannot be loaded: {type(error).__name__}: {why}; nothing was done.",
        code="code_not_loaded",
        code_name=code,
    )


def _things(found: object) -> Iterable[object]:
    match found:
        case ModuleType():
            named = cast("list[object]", list(vars(found).values()))
            return [
                *named,
                *(thing for each in named if not isinstance(each, ModuleType) for thing in _things(each)),
            ]
        case Mapping():
            return list(cast("Mapping[object, object]", found).values())
        case list() | tuple() | set() | frozenset():
            return list(cast("Iterable[object]", found))
        case _:
            return [found]
