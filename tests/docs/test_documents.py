"""Every code block of the documentation does what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks, documents
from tests.docs.runner import Runner


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
            if reason := block.told("not run"):
                with subtests.test(block.place):
                    pytest.skip(f"{block.place}: {reason}")
