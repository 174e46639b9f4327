"""What CONTRIBUTING.md leads to is there: the worked example, the make targets, and the Pythons of the workflow."""

from __future__ import annotations

import re
import tomllib
from datetime import timedelta

import pytest
import yaml

from perdure import errors
from perdure.cli.output import formatting
from tests.docs.blocks import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_worked_example_starts_where_the_page_says() -> None:
    """The function is in that file, and the test of the example fails before the change."""
    assert "src/perdure/cli/output/formatting.py" in PAGE
    assert formatting.duration("2w") == timedelta(days=14)
    with pytest.raises(errors.Invalid):
        formatting.duration("2q")


def test_the_lines_of_the_worked_example_make_its_test_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page shows the lines to change; with them, a duration may be in quarters."""
    pattern = re.findall(r"^ +_DURATION = (.*)$", PAGE, re.MULTILINE)
    unit = re.findall(r'^ +_UNITS\["q"\] = (.*)$', PAGE, re.MULTILINE)

    monkeypatch.setattr(formatting, "_DURATION", eval(pattern[0], {"re": re}))  # noqa: S307
    monkeypatch.setitem(formatting._UNITS, "q", eval(unit[0], {"timedelta": timedelta}))  # noqa: S307

    assert formatting.duration("2q") == timedelta(days=182)


def test_every_make_target_that_the_page_names_exists() -> None:
    """And is marked as one that makes no file."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    phony = set(re.findall(r"^\.PHONY: ([a-z ]+)$", makefile, re.MULTILINE)[0].split())

    assert set(re.findall(r"`?make (?:PYTHON=\S+ )?([a-z]+)`", PAGE)) <= targets
    assert targets == phony


def test_every_folder_that_the_page_names_exists() -> None:
    """A reader who follows it finds it."""
    folders = re.findall(r"`((?:src|tests)/[\w/]+/)`", PAGE)

    assert len(folders) > 10
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []


def test_the_workflow_runs_every_python_that_the_package_declares() -> None:
    """On Linux and macOS, by the command that contributors use."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [each.rpartition(" ")[2] for each in project["classifiers"] if ":: 3." in each]
    job = workflow["jobs"]["test"]

    assert job["strategy"]["matrix"] == {"os": ["ubuntu-latest", "macos-latest"], "python": declared}
    assert job["steps"][-1]["run"] == "make test PYTHON=python"


def test_the_hooks_are_checks_of_make_test() -> None:
    """A commit that passes them is not refused later for its format or its imports."""
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]

    assert [repo["repo"] for repo in hooks] == ["local"]
    assert [hook["name"] for hook in hooks[0]["hooks"]] == ["ruff format", "ruff check", "lint-imports"]
