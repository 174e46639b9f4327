"""Types are ready before threads decode them (see `perdure.model.canonical`)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator

from tests.architecture.source import Module, modules, walk

_PLAIN = ("dict", "list", "tuple", "set", "str", "int", "float", "bool", "bytes")
_PREPARED_BY_THEIR_MODULE = ("Counters", "Message")

# Imports every module, and tells of each type whose fields msgspec reads while another module is imported.
_PROGRAM = """
import importlib, sys

import msgspec.structs

PYTHON_ALONE = ("msgspec.structs", "msgspec.inspect", "msgspec._json_schema")  # these read fields, and store nothing


def look(kind, frame):
    kind = getattr(kind, "__origin__", kind)
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if name in PYTHON_ALONE or (frame.f_code.co_name == "<module>" and name == kind.__module__):
            return
        frame = frame.f_back
    if kind.__module__.startswith("perdure.") and kind.__name__ != "Alone":
        print(f"{kind.__module__}.{kind.__qualname__}")


def spied(obj):
    from sys import _getframe

    _look(obj, _getframe())
    return _read(obj)


read = msgspec._utils.get_class_annotations  # the extension holds this function, so only its code can be replaced
read.__globals__.update(_look=look, _read=type(read)(read.__code__, read.__globals__))
read.__code__ = spied.__code__
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def decoded_types(module: Module) -> Iterator[ast.expr]:
    """The types that functions of a module decode."""
    for function in walk(module.tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for call in walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                    yield from decoded_by(call, call.func)


def decoded_by(call: ast.Call, name: ast.Attribute) -> Iterator[ast.expr]:
    """The type that a call of msgspec is given."""
    words = ast.unparse(name)
    if words == "msgspec.convert":
        yield call.args[1]
    elif words in ("msgspec.json.Decoder", "msgspec.msgpack.Decoder"):
        yield from call.args[:1]
    elif words in ("msgspec.json.decode", "msgspec.msgpack.decode"):
        yield from (each.value for each in call.keywords if each.arg == "type")


def is_ready(kind: ast.expr) -> bool:
    """Whether no thread reads fields there that another one may read at the same time."""
    words = ast.unparse(kind)
    is_plain = words.split("[")[0] in _PLAIN and "perdure" not in words
    return words.startswith("prepared(") or is_plain or words in _PREPARED_BY_THEIR_MODULE


def test_a_function_decodes_types_that_are_prepared() -> None:
    """Two threads that decode a type for the first time at once would end the process."""
    unready = [
        f"{module.name}: {ast.unparse(kind)}"
        for module in modules()
        if not module.name.startswith(("perdure.testing", "perdure.model.canonical"))
        for kind in decoded_types(module)
        if not is_ready(kind)
    ]

    assert unready == []


def test_control_an_unprepared_type_is_found() -> None:
    """The check sees each of the calls that decode."""
    calls = ["msgspec.convert(a, Kind)", "msgspec.json.decode(a, type=Kind)", "msgspec.json.Decoder(Kind)"]

    found = [
        [*decoded_by(call, call.func)]
        for each in calls
        for call in [ast.parse(each, mode="eval").body]
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    ]

    assert [[ast.unparse(kind) for kind in kinds] for kinds in found] == [["Kind"]] * 3
    assert not is_ready(ast.Name("Kind"))


def test_a_type_is_prepared_by_the_module_that_defines_it() -> None:
    """Two threads may import two modules at once, and both decode a type of a third; threads wait for one module only."""
    names = [
        each.name
        for each in modules()
        if not each.name.startswith(("perdure.testing", "perdure.integrations.", "perdure.telemetry.enable"))
        and not each.name.endswith(("__main__", "transport"))
    ]

    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *names], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (0, ""), done.stderr
