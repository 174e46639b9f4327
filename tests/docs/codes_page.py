"""The table of codes in the reference of errors, made from the source.

`python -m tests.docs.codes_page` writes the page again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perdure import errors
from tests.architecture.source import modules
from tests.docs.blocks import ROOT

__all__ = ["PAGE", "codes", "rendered", "table"]

PAGE = ROOT / "docs" / "reference" / "errors.md"
_MARK = re.compile(r"(<!-- generated: codes -->\n).*?(<!-- end -->)", re.DOTALL)
_LENGTH_MAX = 110
_ERRORS = {name for name, kind in vars(errors).items() if isinstance(kind, type)}


def rendered(page: str) -> str:
    """`page` with the table made again."""
    return _MARK.sub(lambda mark: f"{mark[1]}\n{table()}\n{mark[2]}", page)


def table() -> str:
    """One row for each code: the classes that have it, and the first message of each."""
    rows: dict[str, dict[str, str]] = {}
    for code, kind, message in sorted(codes()):
        kinds = rows.setdefault(code, {})
        if kinds.setdefault(kind, message) == "…":
            kinds[kind] = message
    lines = ["| code | error | message |", "|---|---|---|"]
    for code, kinds in rows.items():
        message = next((each for each in kinds.values() if each != "…"), code.replace("_", " "))
        lines.append(f"| `{code}` | {', '.join(f'`{kind}`' for kind in kinds)} | {message} |")
    return "\n".join(lines) + "\n"


def codes(trees: list[ast.Module] | None = None) -> Iterator[tuple[str, str, str]]:
    """Each code that a call of an error's class names as a literal, with the class and the message."""
    trees = [each.tree for each in modules()] if trees is None else trees
    shared = {name: made for tree in trees for name, made in _makers(tree) if not name.startswith("_")}
    for tree in trees:
        makers = shared | dict(_makers(tree))
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or not call.args:
                continue
            name = ast.unparse(call.func).rpartition(".")[2]
            kind, at = makers.get(name, (name, len(call.args)))
            given = [*call.args[at : at + 1], *(each.value for each in call.keywords if each.arg == "code")]
            if kind[:1].isupper():
                texts = [each for each in call.args if each not in given]
                for code in _literals(given[0]) if given else ():
                    yield code, kind, max(map(_message, texts), key=len, default="…")


def _makers(tree: ast.Module) -> Iterator[tuple[str, tuple[str, int]]]:
    """Each function that makes an error of the code that it is given: the error's class, and the argument's place."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or function.name == "__init__":
            continue
        names = [each.arg for each in function.args.args if each.arg not in ("self", "cls")]
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and any(
                each.arg == "code" and ast.unparse(each.value) == "code" for each in call.keywords
            ):
                kind = ast.unparse(call.func).rpartition(".")[2]
                if kind in _ERRORS and "code" in [*names, *(each.arg for each in function.args.kwonlyargs)]:
                    yield function.name, (kind, names.index("code") if "code" in names else 99)


def _literals(node: ast.expr) -> list[str]:
    """The codes that an expression may be: a literal, or one of several that a condition chooses from."""
    if isinstance(node, ast.IfExp):
        return [*_literals(node.body), *_literals(node.orelse)]
    value = node.value if isinstance(node, ast.Constant) else None
    return [value] if isinstance(value, str) and re.fullmatch("[a-z][a-z0-9_]*", value) else []


def _message(node: ast.expr) -> str:
    """The first clause of the message, with … for what it is told at the time."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    text = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)
    clause = re.split(r"[;.](?: |…|$)", text)[0].replace("|", "\\|").replace("<", "‹").replace(">", "›")
    clause = re.sub(r"…+", "…", clause).strip()
    return clause if len(clause) <= _LENGTH_MAX else clause[:_LENGTH_MAX].rpartition(" ")[0] + " …"


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
