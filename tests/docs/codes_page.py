"""The tables of codes and of further classes in the reference of errors, made from the source.

`python -m tests.docs.codes_page` writes the page again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from typing import NamedTuple

from tests.architecture.source import modules, walk
from tests.docs.blocks import ROOT

__all__ = ["PAGE", "Coded", "codes", "rendered"]

PAGE = ROOT / "docs" / "reference" / "errors.md"
_MARK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_LENGTH_MAX = 110
_ROOTS = ("_Coded", "PerdureError", "PerdureWarning")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Coded(NamedTuple):
    """A code, the class of the error that has it, and the beginning of its message."""

    code: str
    kind: str
    message: str


def rendered(page: str) -> str:
    """Return `page` with its tables made again."""
    tables = {"codes": _codes_table, "classes": _classes_table}
    return _MARK.sub(lambda mark: f"{mark[1]}\n{tables[mark[2]]()}\n{mark[3]}", page)


@cache
def _package() -> _Source:
    return _Source({each.name: each.tree for each in modules()})


def codes(trees: Mapping[str, ast.Module] | None = None) -> frozenset[Coded]:
    """Return each code that the source gives to an error, as a literal that a reader of the call can find."""
    return _codes_of_the_package() if trees is None else _Source(trees).codes()


@cache
def _codes_of_the_package() -> frozenset[Coded]:
    return _package().codes()


def _codes_table() -> str:
    """Return one row for each code: the classes that have it, and the first message that says something."""
    rows: dict[str, list[Coded]] = {}
    for found in sorted(codes()):
        rows.setdefault(found.code, []).append(found)
    lines = ["| code | error | message |", "|---|---|---|"]
    for code, all_found in rows.items():
        kinds = ", ".join(f"`{kind}`" for kind in dict.fromkeys(each.kind for each in all_found))
        said = (each.message for each in all_found if re.search(r"\w", each.message))
        lines.append(f"| `{code}` | {kinds} | {next(said, code.replace('_', ' '))} |")
    return "\n".join(lines) + "\n"


def _classes_table() -> str:
    """Return one row for each class of errors outside `perdure.errors`."""
    source = _package()
    lines = ["| error | base class | code | it means |", "|---|---|---|---|"]
    for module, tree in source.trees.items():
        for made in walk(tree):
            if isinstance(made, ast.ClassDef) and made.name in source.bases and module != "perdure.errors":
                code = _code_of_all(made) or re.sub(r"(?<!^)(?=[A-Z])", "_", made.name).lower()
                means = (ast.get_docstring(made) or "").partition("\n")[0].partition(".  ")[0].rstrip(".")
                lines.append(f"| `{module}.{made.name}` | `{source.bases[made.name]}` | `{code}` | {means} |")
    return "\n".join(lines) + "\n"


def _code_of_all(made: ast.ClassDef) -> str | None:
    """Return the code that a class gives to each of its errors; None: that of its name."""
    found = (each.value for each in walk(made) if isinstance(each, ast.keyword) and each.arg == "code")
    return next(
        (each.value for each in found if isinstance(each, ast.Constant) and isinstance(each.value, str)), None
    )


def _last_name(called: ast.expr) -> str:
    """Return the name after the last dot of what is called."""
    if isinstance(called, ast.Name):
        return called.id
    return called.attr if isinstance(called, ast.Attribute) else ast.unparse(called).rpartition(".")[2]


class _Maker(NamedTuple):
    """A function that makes an error of the code that it is given."""

    kind: str
    parameters: list[str]
    message: ast.expr


class _Source:
    """The modules, with what is known of them all."""

    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        self.trees = trees

    def codes(self) -> frozenset[Coded]:
        """What all modules give to errors."""
        return frozenset(found for module in self.trees for found in self.codes_of(module))

    @cached_property
    def bases(self) -> dict[str, str]:
        """The classes of errors, each with the first of its bases."""
        named = {
            made.name: ast.unparse(made.bases[0]).rpartition(".")[2]
            for tree in self.trees.values()
            for made in walk(tree)
            if isinstance(made, ast.ClassDef) and made.bases
        }
        found: dict[str, str] = {}
        for name in named:
            line = [name]
            while line[-1] in named and line[-1] not in _ROOTS:
                line.append(named[line[-1]])
            if line[-1] in _ROOTS:
                found[name] = named[name]
        return found

    @cached_property
    def makers(self) -> dict[tuple[str, str], _Maker]:
        """The makers of errors by module and name."""
        return {
            (module, function.name): maker
            for module, tree in self.trees.items()
            for function in walk(tree)
            if isinstance(function, _Function) and function.name != "__init__"
            for maker in self._maker(function)
        }

    def is_kind(self, name: str) -> bool:
        return name in self.bases or name in _ROOTS

    def codes_of(self, module: str) -> Iterator[Coded]:
        """Yield what one module gives to errors."""
        tree = self.trees[module]
        makers = {name: maker for (where, name), maker in self.makers.items() if where == module}
        for line in walk(tree):
            if isinstance(line, ast.ImportFrom):
                for each in line.names:
                    if maker := self.makers.get((line.module or "", each.name)):
                        makers[each.asname or each.name] = maker
        if not makers and not any(
            isinstance(each, ast.keyword) and each.arg == "code" for each in walk(tree)
        ):
            return  # as most modules
        functions = {each.name: each for each in walk(tree) if isinstance(each, _Function)}
        for call, scope, owner in _calls(tree):
            name = _last_name(call.func)
            code = next((each.value for each in call.keywords if each.arg == "code"), None)
            maker = makers.get(name)
            if maker is None and (code is None or not call.args):
                continue
            values = _Values(scope, functions)
            if maker is not None:
                given = _arguments(maker.parameters, call)
                if code := given.get("code"):
                    for found in _literals(values.of(code)):
                        message = _text(
                            maker.message, _Values(None, {}, {k: [v] for k, v in given.items()}, values)
                        )
                        yield Coded(found, maker.kind, _first_clause(message))
                continue
            assert code is not None, "a call that makes an error itself names its code"
            kinds = [owner] if name == "__init__" else self._kinds(call.func, values)
            found_codes = _literals(values.of(code))
            for kind in kinds:
                for at, found in enumerate(found_codes):
                    chosen = values.choosing(at) if len(found_codes) > 1 else values
                    yield Coded(found, kind, _first_clause(_text(self._message(kind, call), chosen)))

    def _maker(self, function: _Function) -> Iterator[_Maker]:
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        names = [each.arg for each in arguments if each.arg not in ("self", "cls")]
        if "code" not in names:
            return
        for call in walk(function):
            if isinstance(call, ast.Call) and call.args:
                kind = _last_name(call.func)
                passed = (each.arg == "code" and ast.unparse(each.value) == "code" for each in call.keywords)
                if any(passed) and kind[:1].isupper() and self.is_kind(kind):
                    yield _Maker(kind, names, self._message(kind, call))

    def _kinds(self, function: ast.expr, values: _Values) -> list[str]:
        named = [ast.unparse(each).rpartition(".")[2] for each in values.of(function)]
        return [each for each in named if each[:1].isupper() and self.is_kind(each)]

    def _message(self, kind: str, call: ast.Call) -> ast.expr:
        """Return the argument that is the message: `why` of a refusal, else the first one."""
        why = next((each.value for each in call.keywords if each.arg == "why"), None)
        return why if why is not None and kind == "Refused" else call.args[0]


class _Values:
    """The expressions that a name may stand for inside a function."""

    def __init__(
        self,
        scope: _Function | None,
        functions: Mapping[str, _Function],
        known: Mapping[str, list[ast.expr]] | None = None,
        outer: _Values | None = None,
    ) -> None:
        self._functions, self._outer = functions, outer
        self._chosen: int | None = None
        self._known = dict(known or {})
        for line in walk(scope) if scope is not None else ():
            if isinstance(line, ast.Assign):
                self._assigned(line.targets[0], [line.value])

    def choosing(self, at: int) -> _Values:
        """Return the values for the code number `at` of several: branches that name codes name their words too."""
        other = _Values(None, self._functions, self._known, self._outer)
        other._chosen = at
        return other

    def of(self, node: ast.expr, depth: int = 4) -> list[ast.expr]:
        """Return what an expression may be, through conditions, variables and functions of the module."""
        if depth == 0:
            return [node]
        if isinstance(node, ast.IfExp):
            return [*self.of(node.body, depth - 1), *self.of(node.orelse, depth - 1)]
        if isinstance(node, ast.Name) and node.id in self._known:
            return [found for each in self._known[node.id] for found in self.of(each, depth - 1)]
        if isinstance(node, ast.Call) and (function := self._functions.get(ast.unparse(node.func))):
            returned = [each.value for each in walk(function) if isinstance(each, ast.Return)]
            return [each for each in returned if each is not None] or [node]
        return [node]

    def word(self, node: ast.expr) -> str:
        """Return the words that an inserted expression stands for; … if they are not known."""
        if not isinstance(node, ast.Name):
            return "…"
        found = self.of(node)
        if len(found) > 1 and self._chosen is not None and self._chosen < len(found):
            found = [found[self._chosen]]
        if len(found) == 1 and isinstance(found[0], ast.JoinedStr | ast.Constant):
            return _text(found[0], self._outer or self) or "…"
        return "…"

    def _assigned(self, target: ast.expr, given: list[ast.expr]) -> None:
        if isinstance(target, ast.Name):
            self._known.setdefault(target.id, []).extend(given)
        elif isinstance(target, ast.Tuple):
            wholes = [found for each in given for found in self.of(each)]
            parts = [each.elts for each in wholes if isinstance(each, ast.Tuple)]
            for at, inner in enumerate(target.elts):
                self._assigned(inner, [each[at] for each in parts if at < len(each)])


def _calls(tree: ast.AST) -> Iterator[tuple[ast.Call, _Function | None, str]]:
    """Yield each call with the function and the name of the class that it is in."""

    pending: list[tuple[ast.AST, _Function | None, str]] = [(tree, None, "")]
    while pending:
        node, scope, owner = pending.pop()
        if isinstance(node, ast.Call):
            yield node, scope, owner
        inner = node if isinstance(node, _Function) else scope
        of = node.name if isinstance(node, ast.ClassDef) else owner
        pending += [(child, inner, of) for child in reversed(list(ast.iter_child_nodes(node)))]


def _arguments(parameters: list[str], call: ast.Call) -> dict[str, ast.expr]:
    named = {each.arg: each.value for each in call.keywords if each.arg is not None}
    return dict(zip(parameters, call.args, strict=False)) | named


def _literals(nodes: list[ast.expr]) -> list[str]:
    values = [each.value if isinstance(each, ast.Constant) else None for each in nodes]
    return [each for each in values if isinstance(each, str) and re.fullmatch("[a-z][a-z0-9_]*", each)]


def _text(node: ast.expr, values: _Values) -> str:
    """Return the words of a message, with … for what is known only when it is raised."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else "…"
    if isinstance(node, ast.JoinedStr):
        parts = [each.value if isinstance(each, ast.FormattedValue) else each for each in node.values]
        return "".join(
            _text(each, values) if isinstance(each, ast.Constant) else values.word(each) for each in parts
        )
    return values.word(node)


def _first_clause(text: str) -> str:
    clause = re.split(r"[;.](?: |…?$)", text)[0].replace("|", "\\|").replace("<", "‹").replace(">", "›")
    clause = re.sub(r"…+", "…", clause).strip()
    return clause if len(clause) <= _LENGTH_MAX else clause[:_LENGTH_MAX].rpartition(" ")[0] + " …"


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
