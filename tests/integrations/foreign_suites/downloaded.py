"""Test suites of other packages, from their source distributions: downloaded by version when they are run, never committed.

They are unpacked into `PERDURE_SUITES`, or into the temporary folder, and stay there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

__all__ = ["outcomes", "suite"]

HERE = Path(__file__).parent


def suite(package: str, version: str, *needs: str) -> Path:
    """The folder of a suite, with the packages that it `needs` beside ours; a test without network is skipped by name."""
    root = Path(os.environ.get("PERDURE_SUITES") or Path(tempfile.gettempdir()) / "perdure-suites")
    folder = root / f"{package}-{version}"
    if not (folder / "ready").exists():
        folder.mkdir(parents=True, exist_ok=True)
        source = ["download", "--no-deps", "--no-binary", package, "--dest", str(folder)]
        _pip(*source, f"{package}=={version}", what=f"the source of {package} {version}")
        _pip("install", "--no-deps", "--target", str(folder / "needs"), *needs, what=", ".join(needs))
        (packed,) = folder.glob("*.tar.gz")
        with tarfile.open(packed) as archive:
            members = [each for each in archive if each.name.split("/")[1:2] == ["tests"]]
            archive.extractall(folder, members, filter="data")
        next(folder.glob("*/tests")).rename(folder / "tests")
        (folder / "ready").touch()
    return folder


def _pip(*arguments: str, what: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"{what} could not be downloaded")


def outcomes(folder: Path, plugin: str, *arguments: str, env: Mapping[str, str]) -> dict[str, str]:
    """Run the tests of a suite in a process of its own; return the outcome of each case: passed, failed or skipped."""
    report = folder / f"{plugin}-{os.getpid()}.xml"
    paths = [str(folder / "needs"), str(HERE), *sys.path]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", plugin]
    ran = subprocess.run(
        [*command, "--timeout", "300", "--junitxml", str(report), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.exists(), ran.stdout[-2000:] + ran.stderr[-2000:]
    cases = ElementTree.parse(report).getroot().iter("testcase")
    found = {f"{case.get('classname')}::{case.get('name')}": _outcome(case) for case in cases}
    report.unlink()
    return found


def _outcome(case: ElementTree.Element) -> str:
    kinds: Sequence[str] = [each.tag for each in case]
    if "failure" in kinds or "error" in kinds:
        return "failed"
    return "skipped" if "skipped" in kinds else "passed"
