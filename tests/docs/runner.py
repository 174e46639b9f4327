"""Running what a document shows, in order, as its reader would.

A document's Python blocks share one namespace; its commands and its Python share one fresh directory.
A block that a comment calls a file is saved there under that name, for commands such as `python pay.py`.
Output that the document shows must be what comes out, where `…` matches anything.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests import forked
from tests.docs.blocks import Block

__all__ = ["Runner"]

SHOWN_ONLY = {"text", "yaml", "mermaid"}
RUN = {"perdure", "python"}
SET_UP = {"make", "pip", "git", "cd"}  # what a reader does to their own machine, and a test must not
_SHELL = re.compile(r"[|<>&;$`*?~#\\]")  # what a shell would act on
COMMAND_SECONDS_MAX = 1_700  # no command takes long; this is for one that hangs


@dataclass(frozen=True, kw_only=True)
class Command:
    """One line to type, and the output that the document shows for it; None if it shows none."""

    line: str
    output: str | None


@dataclass(kw_only=True)
class Runner:
    """Runs the blocks of one document in `directory`; a block that is wrong is an `AssertionError`."""

    directory: Path
    namespace: dict[str, object] = field(default_factory=lambda: {"__name__": "__main__"})
    printed: str | None = None  # by the last Python block, until a block of output has been compared with it

    def run(self, block: Block) -> None:
        """Do what `block` shows, unless a comment says why not."""
        if block.directive("not run") is not None:
            assert block.directive("not run"), f"{block.place}: say why it is not run"
            return
        if name := block.directive("file"):
            (self.directory / name).write_text(block.text + "\n", encoding="utf-8")
            return
        match block.language:
            case "text" if block.directive("output") is not None:
                assert self.printed is not None, f"{block.place}: no Python block before this output"
                expect(block.place, shown=block.text, actual=self.printed)
                self.printed = None
            case "python":
                self.printed = self.run_python(block)
            case "console" | "sh":
                self.run_commands(block)
            case "json":
                json.loads(block.text)
            case "toml":
                tomllib.loads(block.text)
            case "sql":
                self.run_sql(block)
            case language:
                assert language in SHOWN_ONLY, f"{block.place}: no way to check a block of {language!r}"

    def run_python(self, block: Block) -> str:
        """Execute `block` after those before it; give what it printed."""
        # The empty lines make line numbers in a traceback those of the document.
        source = "\n" * (block.line - 1) + block.text
        code = compile(source, block.document, "exec", dont_inherit=True)
        with contextlib.chdir(self.directory), contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, self.namespace)
        return printed.getvalue()

    def run_commands(self, block: Block) -> None:
        """Type each command of `block` into a shell in which Perdure is installed."""
        exit_expected = int(block.directive("exits") or 0)
        for command in commands(block.text):
            program = shlex.split(command.line, comments=True)[0]
            looks = command.line.startswith(
                "git -C "
            )  # into a repository that a command of the document made
            if program in SET_UP and not looks:
                continue
            assert looks or program in RUN, (
                f"{block.place}: {program!r} is not a command that is run or allowed"
            )
            ended = self.type(command.line)
            # A shell that became the program dies of its signal; one that did not says 128 and the signal.
            exit_code = ended.returncode if ended.returncode >= 0 else 128 - ended.returncode
            complaint = f"{block.place}: {command.line!r} exits {exit_code}:\n{ended.stdout}"
            assert exit_code == exit_expected, complaint
            if command.output is not None:
                expect(f"{block.place}: {command.line}", shown=command.output, actual=ended.stdout)

    def type(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run `line` in a shell, with errors and output in one stream as a reader sees them."""
        scripts = Path(sys.executable).parent
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")
        } | {
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.directory),
            "NO_COLOR": "1",
            "COLUMNS": "100",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # a reader has not the plugins that came with our tests
        }
        words = shlex.split(line, comments=True)
        if words[0] in RUN and not _SHELL.search(line):
            behind = ["-m", *words] if words[0] == "perdure" else words[1:]
            return forked.commands().run(
                behind, cwd=self.directory, env=environment, stderr=subprocess.STDOUT
            )
        return subprocess.run(
            line,
            shell=True,
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )

    def run_sql(self, block: Block) -> None:
        """Run `block` in stock SQLite on the store that its comment names, if it names one."""
        if store := block.directive("run on"):
            uri = f"{(self.directory / store).as_uri()}?mode=ro"
            with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
                connection.executescript(block.text)


def commands(text: str) -> Iterator[Command]:
    """Yield the commands of a shell block: each line, or with prompts each line after `$ ` and its output."""
    joined = text.replace("\\\n", " ")
    if not re.search(r"^\$ ", joined, re.MULTILINE):
        lines = [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]
        yield from (Command(line=line, output=None) for line in lines)
        return
    for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        yield Command(line=line, output=output if output.strip() else None)


def expect(place: str, *, shown: str, actual: str) -> None:
    """Fail unless `actual` is what a document shows; `…` matches anything, spaces at line ends nothing.

    How wide a column is does not matter: `9 s ago` becomes `16 s ago` on a busy machine.
    """
    wanted, got = tidy(shown), tidy(actual)
    pattern = ".*".join(re.escape(part) for part in wanted.split("…"))
    if not re.fullmatch(pattern, got, re.DOTALL):
        raise AssertionError(f"{place}: the document shows\n{wanted}\nbut the output is\n{got}")


def tidy(text: str) -> str:
    """`text` without spaces at the ends of its lines, or empty lines around it; two spaces between columns."""
    return "\n".join(re.sub(r"(?<=\S) {2,}", "  ", line.rstrip()) for line in text.splitlines()).strip("\n")
