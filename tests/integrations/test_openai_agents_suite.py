"""The SDK's own tests of sessions, from its source distribution, with our session in the place of theirs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("agents")

from tests.crash.campaign import DEEP

# They look into SQLiteSession's connections, rows and messages of errors.
ABOUT_ITS_OWN_CLASS = frozenset(
    {
        "test_sqlite_session_close_closes_worker_thread_connections",
        "test_sqlite_session_reaps_connections_from_exited_worker_threads",
        "test_sqlite_session_closes_retired_connections_before_the_next_allocation",
        "test_sqlite_session_keeps_connections_of_live_worker_threads",
        "test_sqlite_session_closed_rejects_empty_add_items",
        "test_sqlite_session_pop_item_skips_corrupt_most_recent",
        "test_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows",
        "test_sqlite_session_get_items_limit_skips_corrupt_newest_rows",
        "test_sqlite_session_get_items_session_settings_limit_skips_corrupt_rows",
        "test_sqlite_session_file_lock_is_shared_across_instances",
        "test_sqlite_session_failed_add_items_releases_write_lock",
        "test_sqlite_session_failed_clear_session_rolls_back",
        "test_sqlite_session_failed_pop_item_releases_write_lock",
        "test_sqlite_session_rollback_failure_evicts_connection",
        "test_sqlite_session_close_retries_quarantined_connection",
        "test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome[add]",
        "test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome[pop]",
        "test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome[clear]",
    }
)
PASSED = 38
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution of the installed version; the test is skipped if it cannot be had."""
    folder = tmp_path_factory.mktemp("sdist")
    wanted = f"openai-agents=={version('openai-agents')}"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--no-binary",
        ":all:",
        "-d",
        str(folder),
    ]
    got = subprocess.run([*pip, "--no-build-isolation", wanted], capture_output=True, text=True, check=False)
    archives = list(folder.glob("*.tar.gz"))
    if not archives:
        pytest.skip(f"the source distribution of {wanted} cannot be downloaded: {got.stderr[-200:]}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder, filter="data")
    return next(each for each in folder.iterdir() if (each / "tests" / "memory").is_dir())


@pytest.mark.skipif(not DEEP, reason="a campaign of make deep: it downloads a source distribution")
def test_the_sdks_own_tests_of_sessions_pass(sdist: Path) -> None:
    """All but those that look into its own class, which are listed by name."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "tests.integrations.swapped_session"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-p", "no:xdist", "tests/memory/test_session.py"],
        cwd=sdist,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^(PASSED|FAILED|ERROR) \S+?::(\S+)", done.stdout, re.MULTILINE)
    failed = {name for outcome, name in found if outcome != "PASSED"}

    assert failed == ABOUT_ITS_OWN_CLASS, done.stdout[-4000:]
    assert len(found) - len(failed) == PASSED
