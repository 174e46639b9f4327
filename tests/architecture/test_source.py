"""How every file of the package is written, whatever it holds."""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture.source import SOURCE, Module, modules, texts, walk

FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 60

# Where people keep their files, and where packages come from.  Neither means anything to a reader elsewhere.
MACHINE = re.compile(r"(?<![\w.~])/(?:root|home|Users|work|opt|private|mnt)/\w")
PACKAGE_INDEX = re.compile(r"pypi\.org|pythonhosted|index-url|index_url|/simple\b", re.IGNORECASE)


def long_functions(tree: ast.Module) -> list[str]:
    """Name each function of `tree` that is longer than a reader can hold."""
    functions = [node for node in walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = [(node.name, (node.end_lineno or node.lineno) - node.lineno + 1) for node in functions]
    return [f"{name}: {lines} lines" for name, lines in lengths if lines > FUNCTION_LINES_MAX]


def opens_with_docstring(module: Module) -> bool:
    """Whether nothing stands before the sentence that says what `module` is for."""
    return bool(ast.get_docstring(module.tree)) and module.tree.body[0].lineno == 1


def postpones_annotations(module: Module) -> bool:
    """Whether `module` has the future import; one that is a docstring alone has nothing to postpone."""
    return len(module.tree.body) == 1 or "\nfrom __future__ import annotations\n" in module.text


def foreign_addresses(text: str) -> list[str]:
    """Find machine paths and package index addresses in `text`."""
    return [match.group() for pattern in (MACHINE, PACKAGE_INDEX) for match in pattern.finditer(text)]


def test_the_package_says_that_it_is_typed() -> None:
    """Type checkers of other programs read our annotations."""
    assert (SOURCE / "py.typed").exists()


def test_every_module_opens_by_saying_what_it_is_for() -> None:
    """The docstring is the first thing in the file."""
    assert [module.name for module in modules() if not opens_with_docstring(module)] == []


def test_every_module_postpones_annotations() -> None:
    """Annotations cost nothing at import."""
    assert [module.name for module in modules() if not postpones_annotations(module)] == []


def test_no_unfinished_work_is_left_in_the_source() -> None:
    """What is left undone is an issue, or a sentence in the module's docstring."""
    marks = re.compile(r"\b(TODO|FIXME|XXX)\b")

    assert [module.name for module in modules() if marks.search(module.text)] == []


def test_no_file_is_too_long() -> None:
    """A file that grows past the limit holds two ideas."""
    lengths = {module.name: len(module.text.splitlines()) for module in modules()}

    assert {name: lines for name, lines in lengths.items() if lines > FILE_LINES_MAX} == {}


def test_no_function_is_too_long() -> None:
    """A function reads as the list of its steps."""
    found = {module.name: long_functions(module.tree) for module in modules()}

    assert {name: functions for name, functions in found.items() if functions} == {}


def test_a_long_function_would_be_found() -> None:
    """Control: the measure counts a function's own lines, inside classes too."""
    method = "class A:\n    def f(self):\n" + "        pass\n" * FUNCTION_LINES_MAX

    assert long_functions(ast.parse(method)) == [f"f: {FUNCTION_LINES_MAX + 1} lines"]


def test_texts_name_no_machine_and_no_package_index() -> None:
    """What people read is true on every machine."""
    found = {path.name: foreign_addresses(path.read_text(encoding="utf-8")) for path in texts()}

    assert {name: addresses for name, addresses in found.items() if addresses} == {}


@pytest.mark.parametrize(
    "text",
    [
        "see /home/ann/agents.db",
        "`/root/x`",
        "pip install --index-url x perdure",
        "https://" + "pypi.org/project/x",
    ],
)
def test_a_foreign_address_would_be_found(text: str) -> None:
    """Control: paths and addresses of this kind are seen."""
    assert foreign_addresses(text)


@pytest.mark.parametrize("text", ["`/notes/2026/a`", "docs/home/page", "~/opt/x", "sqlite:///agents.db"])
def test_a_state_path_is_not_a_foreign_address(text: str) -> None:
    """Control: what the docs speak of all the time is allowed."""
    assert foreign_addresses(text) == []
