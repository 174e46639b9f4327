"""Every code block of the documentation does what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import errors
from tests.coded import raises
from tests.docs.blocks import ROOT, Block, blocks, documents
from tests.docs.runner import Runner

README = ROOT / "README.md"


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_does_what_it_shows(document: Path, tmp_path: Path) -> None:
    """A document's blocks, run in order in a fresh directory, succeed and print what is written there."""
    runner = Runner(directory=tmp_path)

    for block in blocks(document.read_text(encoding="utf-8"), str(document.relative_to(ROOT))):
        runner.run(block)


def test_blocks_that_are_not_run_say_why(subtests: pytest.Subtests) -> None:
    """Each one is reported as skipped, with its reason."""
    for document in documents():
        for block in blocks(document.read_text(encoding="utf-8"), str(document.relative_to(ROOT))):
            if reason := block.directive("not run"):
                with subtests.test(block.place):
                    pytest.skip(f"{block.place}: {reason}")


def examples(markdown: str) -> list[Block]:
    """The Python blocks of a document."""
    return [block for block in blocks(markdown, "README.md") if block.language == "python"]


def printed_twice(directory: Path, block: Block) -> tuple[list[str], list[str]]:
    """What a block prints when it is run as a program of its own, and when it is run again in the same place."""
    first, second = (Runner(directory=directory).run_python(block).splitlines() for _ in range(2))
    return first, second


@pytest.mark.parametrize("number", range(len(examples(README.read_text(encoding="utf-8")))))
def test_every_example_of_the_readme_can_be_run_again(number: int, tmp_path: Path) -> None:
    """A second run in the same store succeeds, ends as the first one did, and says nothing that the first did not."""
    first, second = printed_twice(tmp_path, examples(README.read_text(encoding="utf-8"))[number])

    assert second[-1] == first[-1]
    assert [line for line in second if line not in first] == []
    assert len(second) <= len(first)


def test_the_rent_of_the_readme_is_paid_once(tmp_path: Path) -> None:
    """The example that pays says so at the first run alone."""
    (pays,) = [each for each in examples(README.read_text(encoding="utf-8")) if "def pay(" in each.text]

    first, second = printed_twice(tmp_path, pays)

    assert any(line.startswith("paying 700") for line in first)
    assert second == ["succeeded: Paid."]


def test_an_example_that_can_be_run_only_once_is_found(tmp_path: Path) -> None:
    """Control: without the line that starts over, the second run meets the fork of the first."""
    fork = examples(README.read_text(encoding="utf-8"))[0]
    text = "\n".join(line for line in fork.text.splitlines() if ".rm()" not in line)
    once = Block(document="README.md", line=1, language="python", text=text)

    with raises(errors.Conflict, "timeline_exists", timeline="what-if"):
        printed_twice(tmp_path, once)
