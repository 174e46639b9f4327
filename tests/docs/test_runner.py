"""The runner of documents fails on a wrong block.  Without this, documents that pass would prove nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.docs.blocks import blocks
from tests.docs.runner import Runner


def run(markdown: str, directory: Path) -> None:
    """Run every block of `markdown`, whose fences are written as ''' here."""
    runner = Runner(directory=directory)
    for block in blocks(markdown.replace("'''", "```"), "page.md"):
        runner.run(block)


RIGHT = {
    "one namespace": "'''python\nx = 1\n'''\ntext\n'''python\nassert x == 1\n'''",
    "one directory": "'''python\nopen('a', 'w').close()\n'''\n'''python\nimport os; assert os.path.exists('a')\n'''",
    "output": "'''python\nprint('a b c')\n'''\n<!-- output -->\n'''text\na … c\n'''",
    "columns": "'''python\nprint('a    b')\n'''\n<!-- output -->\n'''text\na  b\n'''",
    "indented": "- item\n\n  '''python\n  if True:\n      x = 1\n  '''",
    "not run": "<!-- not run: needs a key -->\n'''python\nraise SystemExit\n'''",
    "set-up": "'''sh\nmake demo\npip install perdure\n'''",
    "command": "'''console\n$ perdure --version\n…\n'''",
    "commands": "'''sh\n# which one\nperdure --version\nperdure --help | cat\n'''",
    "exit code": "<!-- exits 2 -->\n'''sh\nperdure no-such-command\n'''",
    "file": "<!-- file: a.py -->\n'''python\nprint('a')\n'''\n'''console\n$ python a.py\na\n'''",
    "killed": (
        "<!-- file: a.py -->\n'''python\nimport os; os.kill(os.getpid(), 9)\n'''\n"
        "<!-- exits 137 -->\n'''sh\npython a.py\n'''"
    ),
    "shown only": "'''text\nx\n'''\n'''json\n{}\n'''\n'''sql\nselect nothing\n'''\n'''toml\na = 1\n'''",
}

WRONG = {
    "exception": "'''python\n1 / 0\n'''",
    "name of no earlier block": "'''python\nx\n'''",
    "output": "'''python\nprint('a')\n'''\n<!-- output -->\n'''text\nb\n'''",
    "no columns": "'''python\nprint('a b')\n'''\n<!-- output -->\n'''text\na  b\n'''",
    "output of nothing": "<!-- output -->\n'''text\na\n'''",
    "no reason": "<!-- not run: -->\n'''python\n1 / 0\n'''",
    "comment out of reach": "<!-- not run: reason -->\ntext\n'''python\n1 / 0\n'''",
    "exit code": "'''sh\nperdure no-such-command\n'''",
    "exit code not met": "<!-- exits 3 -->\n'''sh\nperdure --version\n'''",
    "command's output": "'''console\n$ perdure --version\nnot a version\n'''",
    "file with an error": "<!-- file: a.py -->\n'''python\n1 / 0\n'''\n'''sh\npython a.py\n'''",
    "unknown command": "'''sh\ncurl example.org\n'''",
    "unknown language": "'''ruby\n1\n'''",
    "no language": "'''\n1\n'''",
    "not closed": "'''python\nx = 1\n",
    "json": "'''json\n{,}\n'''",
    "sql": "<!-- run on store.db -->\n'''sql\nselect * from nothing\n'''",
}


@pytest.mark.parametrize("markdown", RIGHT.values(), ids=RIGHT)
def test_a_right_block_passes(markdown: str, tmp_path: Path) -> None:
    """What a document may contain."""
    run(markdown, tmp_path)


@pytest.mark.parametrize("markdown", WRONG.values(), ids=WRONG)
def test_a_wrong_block_fails(markdown: str, tmp_path: Path) -> None:
    """Control: none of these may pass."""
    with closing(sqlite3.connect(tmp_path / "store.db")) as store:
        store.execute("create table something (x)")

    with pytest.raises((AssertionError, ArithmeticError, NameError, ValueError, sqlite3.Error)):
        run(markdown, tmp_path)


def test_a_traceback_points_into_the_document(tmp_path: Path) -> None:
    """An author finds the line at fault where they wrote it."""
    with pytest.raises(ZeroDivisionError) as caught:
        run("# Title\n\n'''python\nx = 1\n1 / 0\n'''", tmp_path)

    assert (str(caught.traceback[-1].path), caught.traceback[-1].lineno + 1) == ("page.md", 5)
