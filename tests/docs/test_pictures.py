"""The pictures of the documentation are what the code draws today."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tests.page import browser
from tools.pictures import DIRECTORY, PAGE, demo, photograph, pictures, record

HINT = "run `make pictures`"


@pytest.fixture(scope="module")
def recorded() -> list[str]:
    """A demo, recorded now."""
    return record()


@pytest.fixture(scope="module")
def drawn(recorded: list[str]) -> dict[str, str]:
    """Each picture, drawn now."""
    return pictures(recorded)


@pytest.mark.parametrize("name", ["thread.svg", "demo.svg"])
def test_a_picture_is_up_to_date(name: str, drawn: dict[str, str]) -> None:
    """The committed file is what the script draws, and for the demo what the command prints."""
    assert (DIRECTORY / name).read_text(encoding="utf-8") == drawn[name], HINT


def test_there_is_no_other_picture(drawn: dict[str, str]) -> None:
    """A picture that no script makes would grow old unseen."""
    assert {path.name for path in DIRECTORY.iterdir()} == {*drawn, PAGE}


@pytest.mark.deep
@pytest.mark.skipif(browser.missing() is not None, reason=browser.missing() or "")
def test_the_script_takes_the_picture_of_the_page() -> None:
    """It is a picture of the same size as the one that is kept; times and digests in it change."""
    taken, kept = photograph(), (DIRECTORY / PAGE).read_bytes()

    assert taken.startswith(b"\x89PNG")
    assert taken[16:24] == kept[16:24]  # width and height


@pytest.mark.parametrize("name", ["thread.svg", "demo.svg"])
def test_a_picture_is_small_and_loads_nothing(name: str) -> None:
    """It is well-formed, takes less than 20 KB, and names no address but the one of its format."""
    text = (DIRECTORY / name).read_text(encoding="utf-8")

    ElementTree.fromstring(text)
    assert len(text.encode()) < 20_000
    assert set(re.findall(r"\w+://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}


def test_a_changed_line_of_the_demo_would_be_found(recorded: list[str], drawn: dict[str, str]) -> None:
    """Control: the picture follows what the command prints."""
    lines = [line.replace("Start both again", "Begin both again") for line in recorded]

    assert demo(lines) != drawn["demo.svg"]
