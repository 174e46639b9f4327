"""The page in a real browser: what a person does with it, hostile text, the keyboard, accessibility and large stores.

One browser plays for all tests.  With `PERDURE_DEEP=1` pictures of each step are kept in build/page.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.campaign import sized
from tests.engines.postgres.stores import new_store
from tests.page import browser
from tests.page.browser import Browser, serving
from tests.page.proxy import proxied

pytestmark = pytest.mark.skipif(browser.missing() is not None, reason=browser.missing() or "")

_FETCHED_BYTES_MAX = 300_000
_REQUESTS_MAX = 25  # a page that settles late, on a busy machine, fetches a window more


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The browser."""
    with Browser() as started:
        yield started


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.deep)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store on each engine that a server process can open."""
    return new_store(request) if request.param == "postgres" else str(tmp_path / "agents.db")


def test_a_person_finds_forks_compares_approves_switches_and_watches(
    chromium: Browser, store_url: str, tmp_path: Path
) -> None:
    """A thread is found by words, forked, compared, approved with an edit, switched and back, and watched live."""
    with serving(store_url, tmp_path) as link:
        chromium.play(
            link,
            tmp_path,
            (
                "list",
                "find",
                "lost_and_found",
                "joining",
                "away",
                "first",
                "blame",
                "history",
                "possible",
                "readme",
                "fork",
                "compare",
                "mark",
                "approve",
                "repeat",
                "faster",
                "switch",
                "live",
                "undo",
                "forgotten",
                "dead_ends",
                "timelines",
                "runs",
                "memory",
                "remember",
                "times",
                "verify",
            ),
        )


def test_a_page_that_does_not_do_its_part_is_found_by_the_same_scenarios(
    chromium: Browser, tmp_path: Path
) -> None:
    """Control: a search without hits, a fork elsewhere, other values, arguments, a lost undo and no stream are found."""
    with serving(str(tmp_path / "agents.db"), tmp_path) as link:
        failed = chromium.play_spoiled(link, tmp_path, tuple(SPOILED))

    missed = {name: failed[name] for name, text in SPOILED.items() if text not in str(failed[name])}
    assert missed == {}


SPOILED = {  # what a scenario says when the thing that it is about is broken
    "find": "region', { name: 'Messages' }",
    "fork": "a fork runs nothing",
    "compare": "12001",
    "approve": "601",
    "switch": "Switch after turn 3",
    "drop": "put-away.*dropped",
    "amounts": "is cut",
    "elsewhere": "has decided",
    "question": "the tool has no value then",
    "settle": "4711",
    "guarded": "Faro",
    "retry": "getByText('failed')",
    "merged": "1 call since",
    "remember": "My Trip",
    "times": "!== 4",
    "runs": "tokens in",
    "live": "data-live-text",
}


def test_an_act_is_made_on_what_the_person_has_seen(chromium: Browser, tmp_path: Path) -> None:
    """A switch that others have written after is not undone, main is replaced as it was read, a lost message is one."""
    with serving(str(tmp_path / "agents.db"), tmp_path) as link:
        chromium.play(link, tmp_path, ("late", "conflict", "overtaken", "promote", "drop", "lost"))


def test_a_person_sees_what_there_is_to_decide_and_what_came_of_it(chromium: Browser, tmp_path: Path) -> None:
    """No amount is cut, a mended mistake is no error, others' decisions are shown, and an outcome is said in two steps."""
    with serving(str(tmp_path / "agents.db"), tmp_path) as link:
        chromium.play(
            link,
            tmp_path,
            (
                "amounts",
                "mistake",
                "elsewhere",
                "stays",
                "question",
                "settle",
                "guarded",
                "retry",
                "merged",
            ),
        )
        failed = chromium.play_spoiled(link, tmp_path, ("stays",))["stays"]

    assert "has decided" in failed, failed


def test_a_person_sees_what_a_copied_store_holds_and_releases_it(chromium: Browser, tmp_path: Path) -> None:
    """List, thread and approval say that it is held; the control, a server that does not say it, is found."""
    with serving(str(tmp_path / "agents.db"), tmp_path, options=("--copied",)) as link:
        failed = chromium.play_spoiled(link, tmp_path, ("held",))["held"]
        chromium.play(link, tmp_path, ("held",))

    assert "trip-44.*held" in failed, failed


def test_any_number_of_tabs_can_be_open(chromium: Browser, tmp_path: Path) -> None:
    """A browser has six connections to a server; tabs that are out of view hold none of them."""
    with serving(str(tmp_path / "agents.db"), tmp_path) as link:
        chromium.play(link, tmp_path, ("tabs",))


def test_the_page_works_below_a_path(chromium: Browser, tmp_path: Path) -> None:
    """Mounted in another application, the page, its links, its requests and its streams all stay below their path."""
    with serving(str(tmp_path / "agents.db"), tmp_path, options=("--below", "/our agents")) as link:
        chromium.play(link, tmp_path, ("find", "stranger", "live"))


def test_the_page_works_behind_a_proxy_that_removes_a_path(chromium: Browser, tmp_path: Path) -> None:
    """The proxy passes on what is below a path, without it; the page never asks for anything above."""
    with (
        serving(str(tmp_path / "agents.db"), tmp_path, options=("--root-path", "/team/agents")) as link,
        proxied(link, "/team/agents") as shown,
    ):
        chromium.play(shown, tmp_path, ("find", "live"))


def test_hostile_text_never_runs(chromium: Browser, tmp_path: Path) -> None:
    """Hostile words in every field are shown as words; the control shows that they are live elsewhere."""
    with serving(str(tmp_path / "agents.db"), tmp_path) as link:
        chromium.play(link, tmp_path, ("hostile", "control"))


def test_the_page_works_by_keyboard_and_with_a_screen_reader(chromium: Browser, tmp_path: Path) -> None:
    """Keys alone suffice, axe finds no serious fault in either theme, and nothing is wider than 360 pixels."""
    with serving(str(tmp_path / "agents.db"), tmp_path) as link:
        chromium.play(link, tmp_path, ("keyboard", "accessible", "narrow"))


def test_a_large_store_is_fetched_in_windows(chromium: Browser, tmp_path: Path) -> None:
    """Opening a long thread or a large store fetches one window, and so does scrolling to any turn."""
    turns, threads = sized(500, 10_000), sized(200, 5_000)

    with serving(str(tmp_path / "agents.db"), tmp_path, turns, threads) as link:
        found = chromium.play(link, tmp_path, ("large",))["large"]

    assert found["turns"] == turns
    assert more_than_windows(found) == [], found
    print(found)


def test_the_page_reaches_all_that_a_list_has(chromium: Browser, tmp_path: Path) -> None:
    """Moves, turns, memories and calls beyond one page; the control, a server that gives one page, is found."""
    with serving(str(tmp_path / "agents.db"), tmp_path, 510, 1) as link:
        chromium.play(link, tmp_path, ("pages",))
        failed = chromium.play_spoiled(link, tmp_path, ("pages",))["pages"]

    assert "100 !==" in failed, failed


def test_a_page_that_fetches_a_whole_history_is_found_by_the_same_measure(
    chromium: Browser, tmp_path: Path
) -> None:
    """Control: a script beside the page reads the thread and the list window after window."""
    with serving(str(tmp_path / "agents.db"), tmp_path, 500, 300) as link:
        found = chromium.play_spoiled(link, tmp_path, ("large",))["large"]

    assert more_than_windows(found) == ["threads", "thread", "middle", "scrolled"], found


def more_than_windows(found: dict[str, Any]) -> list[str]:
    """The visits of a large store for which more was fetched than what is in view."""
    visits = [
        name
        for name in ("threads", "thread", "middle")
        if found[name]["bytes"] > _FETCHED_BYTES_MAX or found[name]["requests"] > _REQUESTS_MAX
    ]
    scrolled = found["scrolled"]
    is_window = scrolled["turns"] in range(1, 5) and scrolled["others"] == []
    return visits if is_window else [*visits, "scrolled"]
