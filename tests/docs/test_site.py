"""The site that `make docs` builds: every page is in it, it can be searched, and a dead link fails the build."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what the site is built from."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "tools").mkdir()
    shutil.copyfile(ROOT / "tools" / "site.py", tmp_path / "tools" / "site.py")
    shutil.copyfile(ROOT / "mkdocs.yml", tmp_path / "mkdocs.yml")
    return tmp_path


def build(project: Path) -> subprocess.CompletedProcess[str]:
    """Build the site as `make docs` does."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=project,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.deep
def test_the_site_has_every_page_and_can_be_searched(project: Path) -> None:
    """Strictly built; the index of the search names a page by its words."""
    built = build(project)

    assert built.returncode == 0, built.stderr
    site = project / "build" / "site"
    pages = {
        page.relative_to(project / "docs").with_suffix(".html") for page in (project / "docs").rglob("*.md")
    }
    assert {page for page in pages if not (site / page).is_file()} == set()
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    assert any(
        "restore" in each["text"] and each["location"].startswith("how-to/back-up") for each in entries
    )


def test_a_link_or_an_anchor_that_leads_nowhere_fails_the_build(project: Path) -> None:
    """The control: a site of two pages, with one link to a page, and one to an anchor, that is not there."""
    for page in (project / "docs").rglob("*.md"):
        page.unlink()
    (project / "docs" / "other.md").write_text("# There\n")
    (project / "docs" / "index.md").write_text("# Here\n\n[gone](how-to/gone.md) [there](other.md#gone)\n")

    built = build(project)

    assert built.returncode != 0
    assert "how-to/gone.md" in built.stderr
    assert "#gone" in built.stderr
