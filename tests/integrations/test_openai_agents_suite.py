"""The OpenAI Agents SDK's own tests of sessions, from its source distribution, with our session in place of its own."""

from __future__ import annotations

from importlib.metadata import version

import pytest

pytest.importorskip("agents")

from tests.crash.campaign import DEEP
from tests.integrations.foreign_suites.downloaded import outcomes, suite

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


@pytest.mark.timeout(1800)
@pytest.mark.skipif(not DEEP, reason="a campaign of make deep: it downloads the suite of the SDK")
def test_the_sdks_own_tests_of_sessions_pass() -> None:
    """38 of 56; the others look into its own class and are listed by name."""
    folder = suite("openai-agents", version("openai-agents"), "pytest-asyncio")
    found = outcomes(folder, "session_plugin", "tests/memory/test_session.py", env={})
    failed = {name.partition("::")[2] for name, outcome in found.items() if outcome != "passed"}

    assert failed == ABOUT_ITS_OWN_CLASS
    assert len(found) == 56
