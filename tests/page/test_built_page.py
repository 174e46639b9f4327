"""The built page: it is what its sources make, it is small, and no source inserts text as HTML."""

from __future__ import annotations

import gzip
import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from perdure import errors, server
from perdure.server.problems import FOR_HTTP
from tests.page import browser

_BUILT = Path(server.__file__).with_name("page")
_REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
_GZIP_BYTES_MAX = 120_000
_AS_HTML = re.compile(
    r"\{@html|innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|\beval\(|new Function"
)


def _files(directory: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(directory)): each.read_bytes() for each in directory.rglob("*") if each.is_file()
    }


@pytest.mark.skipif(browser.build_missing() is not None, reason=browser.build_missing() or "")
def test_the_built_page_is_what_the_sources_make(tmp_path: Path) -> None:
    """A build of the sources has the same files, byte for byte."""
    made = tmp_path / "page"

    subprocess.run(
        ["node", "node_modules/vite/bin/vite.js", "build", "--logLevel", "error"],
        cwd=browser.SOURCES,
        env=os.environ | {"OUT": str(made)},
        check=True,
    )

    assert _files(made) == _files(_BUILT)


def test_the_page_is_small() -> None:
    """All scripts and styles together have at most 120 kB after gzip."""
    assert 0 < compressed_bytes(_files(_BUILT)) <= _GZIP_BYTES_MAX


def test_a_page_that_is_too_large_is_found_by_the_same_measure() -> None:
    """Control: another script of what the limit leaves counts, and so do styles; a picture does not."""
    files = _files(_BUILT)
    left = random.Random(0).randbytes(_GZIP_BYTES_MAX - compressed_bytes(files) + 1)

    sizes = {name: compressed_bytes(files | {name: left}) for name in ("a.js", "a.css", "a.svg")}

    assert {name for name, size in sizes.items() if size > _GZIP_BYTES_MAX} == {"a.js", "a.css"}


def compressed_bytes(files: dict[str, bytes]) -> int:
    """How many bytes the scripts and styles of a page have after gzip."""
    return sum(len(gzip.compress(body)) for name, body in files.items() if name.endswith((".js", ".css")))


def test_no_source_inserts_text_as_html() -> None:
    """The sources of the page use none of the ways in which text becomes markup or code."""
    sources = [each for each in (browser.SOURCES / "src").rglob("*") if each.is_file()]

    found = {each.name: _AS_HTML.findall(each.read_text(encoding="utf-8")) for each in sources}

    assert len(sources) > 30
    assert {name: uses for name, uses in found.items() if uses} == {}


def test_the_page_has_advice_only_for_errors_that_exist() -> None:
    """Each code in its table is one of the reference, and no advice there names a function of the library."""
    table = (browser.SOURCES / "src" / "lib" / "advice.ts").read_text(encoding="utf-8")
    known = set(re.findall(r"`(\w+)`", (_REFERENCE / "errors.md").read_text(encoding="utf-8")))
    known |= {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in vars(errors)}  # of whole classes

    advice = dict(re.findall(r"^  (\w+): '(.*)',$", table, re.MULTILINE))

    assert len(advice) > 20
    assert set(advice) - known == set()
    assert [text for text in advice.values() if "(" in text] == []
    # What the server advises programs that speak HTTP is nothing for a person; the page has no such request of its own.
    unseen = {"memory_missing", "nothing_to_restore", "range_not_found"}
    assert {code for code, text in FOR_HTTP.items() if "/v1/" in text} - unseen - set(advice) == set()


def test_the_page_names_no_other_address() -> None:
    """Nothing is loaded from elsewhere: the only addresses in the built page are names of XML spaces and Svelte's help."""
    text = b"".join(_files(_BUILT).values()).decode()

    found = {each for each in re.findall(r"https?://[^\s\"'`)]+", text) if "www.w3.org/" not in each}

    assert {each for each in found if not each.startswith("https://svelte.dev/e/")} == set()
