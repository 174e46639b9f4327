"""What the source says to people at a terminal and to clients of a server: in commands, requests or tools, never in Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perdure.cli.hints import COMMANDS
from perdure.errors import Busy, Held, Invalid, MergeConflict, PerdureError, RunFailed, ServerChanged
from perdure.server.openapi import schema
from perdure.server.problems import FOR_APPLICATIONS, FOR_HTTP, FOR_MCP, advice_for
from tests.architecture.source import Module, modules, walk
from tests.surfaces.test_cli_advice import PYTHON
from tests.surfaces.test_cli_advised_commands import assert_can_be_typed

# Expressions and SQL, which no message shows to a person.
FOREIGN = re.compile(r"\(\?:|\b(?:SELECT|INSERT|UPDATE|DELETE|CREATE|CAST|JOIN|VALUES)\b|l\.id")

# Of what programs declare and call: a person at a terminal meets it only as the cause of a --code that cannot be
# loaded, where it is about their own program.
DECLARED = {
    "perdure.integrations.claude_agent.lines": ("ClaudeAgentOptions(system_prompt=…)",),
    "perdure.integrations.openai_agents.session": ("store.thread(…)",),
    "perdure.integrations.pydantic_ai.tool_guard": ("agent.run(…, conversation_id=…)", "ToolGuard(…, thread=…)"),
    "perdure.server.app": ("`hosts` of `perdure.server.app`",),
    "perdure.errors": ("resume('{}', retry=True)",),  # of `str(error)`, which no terminal shows
    "perdure.store.thread": ("resume(run, retry=True)", "change.say", "change.append", "`with thread.change(…) as change:`", "decide(call, 'approve')", "decide(call, 'deny')"),
    "perdure.store.plumbing.run_fence": ("on({})",),
    "perdure.runtime.agent.agent": ("perdure.Policy", "perdure.Route", "testing.Script", "perdure.Stop", "@perdure.tool(effect=…)", "perdure.ContextLimits", "perdure.Guard", "perdure.RunLimits", "price=", "accept=", "store.thread(…, owner=…)", "thread.run(…, output=…)", "Stop(steps=…)", "Backend(…, client=…)", "Route([…])"),
    "perdure.runtime.agent.state": ("perdure.state",),
    "perdure.runtime.agent.plugin": ("perdure.state", "scope='run'", "input=", "output=", "arguments="),
    "perdure.runtime.tools.signature": ("tool(object.method)",),
    "perdure.runtime.event_loop": ("follow()",),
    "perdure.runtime.calls.direct_call": ("resolve()", "resume()"),
    "perdure.runtime.run.control": ("undo()", "redo()", "reconcile()", "resolve()"),
    "perdure.runtime.streaming": ("follow()",),
    "perdure.runtime.tools.call": ("until=",),
    "perdure.runtime.tools.waiting": ("datetime.now(UTC)", "timedelta(…)"),
    "perdure.store.worker": ("limits=", "perdure.RunLimits"),
    "perdure.runtime.tools.tool": ("key=…", "name=…", "idempotent=True", "key_scope='store'"),
    "perdure.switching.policy": ("unfinished=", "wait_seconds="),
    "perdure.switching.route": ("budget_tokens=",),
    "perdure.model.message": ("perdure.Message", "say()", "perdure.ToolCall", "json.dumps", "perdure.ToolResult"),
    "perdure.memory.search": ("perdure.open(…, embed='auto')",),
    "perdure.providers.validator.openai_responses": ("store=false",),
    "perdure.runtime.session.result": ("output=", "run()"),
    "perdure.runtime.session.inputs": ("change()",),
    "perdure.runtime.session.steering": ("run()",),
    "perdure.store.change": ("chain='steps'", "change()", "on({})", "change()"),
    "perdure.store.plumbing.directory": ("agent=",),
    "perdure.store.plumbing.handles": ("perdure.aio", "perdure.open(…, blocking=True)"),
}  # fmt: skip


# Codes of what only a program does that holds a store, or that declares agents: no request and no tool leads there.
OF_PROGRAMS = {
    "blocks_event_loop", "change_used", "decider_missing", "document_not_found", "effect_not_declared", "forked_in_run",
    "forked_stream", "guard_invalid", "input_role_invalid", "not_a_chain_of_steps", "not_a_thread",
    "output_type_missing", "path_reserved", "policy_contradiction", "replay_out_of_order", "replayed_input_undone",
    "runs_held", "state_declaration_invalid", "suspension_invalid", "thread_not_named", "time_without_zone",
    "tool_name_invalid", "vector_package_missing",
}  # fmt: skip


def test_every_command_in_a_message_or_a_help_text_exists() -> None:
    """In the library, in the table of advice, and in what the commands say of themselves."""
    for module in modules():
        for text in texts_of(module):
            assert_can_be_typed(
                "\n".join(f"`{each}`" for each in re.findall(r"`(perdure [a-z][^`]*)`", text))
            )
    for meant in COMMANDS.values():
        for each in re.findall(r"<([^<>]+)>", meant):
            assert_can_be_typed(f"`perdure {each}`")


def test_each_code_of_the_table_is_one_of_the_library() -> None:
    """A code that the library gives no error any more has no row."""
    codes = {code for module in library() for code in codes_in(module.tree)}

    assert set(COMMANDS) - codes == set()


def test_each_error_has_the_facts_that_its_commands_name() -> None:
    """A command with a hole in it cannot be typed."""
    for module in library():
        for call in walk(module.tree):
            if isinstance(call, ast.Call):
                given = {each.arg for each in call.keywords}
                for code in keyword_texts(call, "code"):
                    named = set(re.findall(r"{(\w+)}", COMMANDS.get(code, "")))
                    assert named <= given, (module.name, code)


def test_advice_in_python_belongs_to_an_error_that_has_commands() -> None:
    """New advice in terms of methods needs a code and a row in the table, or belongs to what only programs meet."""
    found = [(module.name, text) for module in library() for text in python_in(module.name, module.tree)]

    assert found == []


def test_advice_in_python_would_be_found() -> None:
    """Control: an error without a row in the table may not name a method, and no message may."""
    without_row = (
        'def f():\n    raise NotFound("it is not there.", code="other", advice="See what is with paths().")'
    )
    in_message = (
        'def f():\n    raise NotFound("it is not in paths() now.", code="path_not_found", advice="Look.")'
    )
    for text in (without_row, in_message):
        assert python_in("x", ast.parse(text))


def test_a_client_is_advised_in_requests_and_tools_and_not_in_python() -> None:
    """Each code whose advice names a method has a row in the tables of the server, or no client meets it."""
    named = {code for code, advice in advised() if PYTHON.search(advice)}

    assert len(named) > 50  # control: such advice is found
    assert named - set(FOR_HTTP) == OF_PROGRAMS
    assert [
        text
        for table in (FOR_HTTP, FOR_MCP, FOR_APPLICATIONS)
        for text in table.values()
        if PYTHON.search(text)
    ] == []


def test_each_request_and_each_tool_of_an_advice_exists() -> None:
    """A client can send what it is told to send; each code is one of the library."""
    known = {f"{method.upper()} {path}" for path, methods in schema()["paths"].items() for method in methods}
    requests = {
        request for text in FOR_HTTP.values() for request in re.findall(r"[A-Z]{3,6} /[\w{}/-]+", text)
    }
    tools = {tool for text in FOR_MCP.values() for tool in re.findall(r"tool `(\w+)`", text)}
    codes = {code for module in library() for code in codes_in(module.tree)}

    assert len(requests) > 10
    assert requests - known == set()
    assert tools == {"approvals", "memory_search", "state", "threads"}
    assert (set(FOR_HTTP) | set(FOR_MCP)) - codes == set()


def test_a_failed_run_has_the_advice_of_its_cause() -> None:
    """A program of one's own, whose requests are not known, is told what the library says."""
    failed = RunFailed("r1", advice="Set KEY, or give api_key=.")
    failed.__cause__ = Invalid("", code="api_key_missing", advice="Set KEY, or give api_key=.")

    assert advice_for(failed, FOR_HTTP) == FOR_HTTP["api_key_missing"]
    assert advice_for(failed, {}) == "Set KEY, or give api_key=."


def advised() -> Iterator[tuple[str, str]]:
    """The codes of the library, each with what an error of that code may advise."""
    for module in library():
        for call in errors_in(module.tree):
            for code in keyword_texts(call, "code"):
                advice = [each.value for each in call.keywords if each.arg == "advice"]
                yield code, " ".join(text for value in advice for text in texts_in(value))
    changed = ServerChanged("openai:x", recorded=None, resolved=None)
    busy = (Busy("r1", "noon"), Busy("r1", "noon", interrupted=True))
    made: tuple[PerdureError, ...] = (*busy, Held("chat", "a.db"), MergeConflict(()), changed)
    yield from ((each.code, each.advice) for each in made)


def library() -> list[Module]:
    """What speaks to programs, and may be heard at a terminal: frameworks that hold a store are not at one."""
    apart = ("perdure.cli", "perdure.testing", "perdure.integrations.door", "perdure.integrations.langgraph")
    return [module for module in modules() if not module.name.startswith((*apart, "perdure.server.openapi"))]


def python_in(name: str, tree: ast.AST) -> list[str]:
    """The texts that a terminal would show and that name something of Python."""
    allowed = {text for call in advising(tree) for text in texts_in(call)}
    messages = {text for call in errors_in(tree) for each in call.args[:1] for text in texts_in(each)}
    texts = [text for text in texts_in(tree) if text in messages or text not in allowed]
    return [text for text in texts if PYTHON.search(without_declared(name, text))]


def without_declared(module: str, text: str) -> str:
    """A text without what is about the user's own program."""
    for known in DECLARED.get(module, ()):
        text = text.replace(known, "")
    return text.replace("{}", "")


def advising(tree: ast.AST) -> Iterator[ast.AST]:
    """The functions and classes that make an error whose advice the table has in commands."""
    for node in walk(tree):
        own = isinstance(node, ast.ClassDef) and snake_case(node.name) in COMMANDS
        if own or (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and codes_in(node) & set(COMMANDS)
        ):
            yield node


def errors_in(tree: ast.AST) -> Iterator[ast.Call]:
    """The calls that make an error with a code."""
    for node in walk(tree):
        if isinstance(node, ast.Call) and any(each.arg == "code" for each in node.keywords):
            yield node


def codes_in(tree: ast.AST) -> set[str]:
    """The texts that may be codes, and the codes of the classes."""
    classes = {snake_case(node.name) for node in walk(tree) if isinstance(node, ast.ClassDef)}
    return classes | {
        node.value for node in walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def keyword_texts(call: ast.Call, name: str) -> set[str]:
    """The texts that an argument of a call may be."""
    values = [each.value for each in call.keywords if each.arg == name]
    return {text for value in values for text in codes_in(value)}


def snake_case(name: str) -> str:
    """The code of a class of errors."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def texts_of(module: Module) -> list[str]:
    """The sentences in a module's code, {} for what is filled in; docstrings are none."""
    return texts_in(module.tree)


def texts_in(tree: ast.AST) -> list[str]:
    """The sentences in a part of a module."""
    inner: set[ast.AST] = set()
    found: list[str] = []
    for node in walk(tree):
        if isinstance(node, ast.Expr):
            inner.add(node.value)
        if node in inner:
            continue
        if isinstance(node, ast.JoinedStr):
            inner.update(node.values)
            found.append(
                "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.values)
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return [text for text in found if re.search(r"[a-z]{2} [a-z]", text) and not FOREIGN.search(text)]
