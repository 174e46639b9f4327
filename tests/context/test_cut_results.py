"""Results of tools are shown whole while the window has room for them; what is cut says so, and can be read."""

from __future__ import annotations

import pytest

import perdure
from perdure import Agent, ContextLimits, Store, Thread
from perdure.model.context import Context
from perdure.providers import tokens
from perdure.testing import Script, say, use
from tests.context.lines import answer, asking, check_pairs, check_valid, script_of, user
from tests.recorded.pairs import DEEP

A, B = "openai:gpt-5.6", "anthropic:claude-sonnet-5-5"
MIDDLE = "the needle in the middle"


def text_of(size: int) -> str:
    """So many characters, with a needle in the middle."""
    half = "It rains in Bergen, and the ferry leaves at nine. " * (size // 100 + 1)
    return f"{half[: size // 2]}{MIDDLE}{half[: size - size // 2 - len(MIDDLE)]}"


def said(store: Store, *results: str, window: int, args: str = "") -> Thread:
    """A line on A with one turn for each result."""
    thread = store.thread(
        "t", agent=Agent("a", backend=Script(backend=A), context=ContextLimits(window=window))
    )
    for at, result in enumerate(results):
        with thread.change("said") as change:
            for message in (user(f"Look {at}."), asking(f"c{at}{args}"), answer((f"c{at}{args}", result))):
                change.add(message)
            change.say("assistant", f"Answer {at}.")
    return thread


def shown(context: Context) -> str:
    """Everything that is shown, as one text."""
    return str(list(context.messages))


def fits_whole(text: str, window: int) -> bool:
    """Whether there is room for a text beyond doubt: a quarter is kept for the answer, and little else is shown."""
    return tokens.count(text, model=B).count * 1.25 * 1.1 + 1_500 < window * 0.75 * 0.95


@pytest.mark.parametrize("window", [8_192, *((32_000, 128_000) if DEEP else ()), 1_000_000])
@pytest.mark.parametrize("size", [16_000, 200_000, 2_000_000])
def test_a_result_crosses_a_switch_whole_where_it_fits_and_is_cut_openly_where_not(
    store: Store, size: int, window: int
) -> None:
    """Whole, or with a plan item, a loss and a ⚠ line that say how much of it is shown."""
    text = text_of(size)
    thread = said(store, text, window=window)

    plan, report = thread.plan(B), thread.check_switch(B)

    whole = MIDDLE in shown(plan.context) and "left out here" not in shown(plan.context)
    assert whole or not fits_whole(text, window)
    assert plan.fits
    warned = [line for line in report.lines if line.startswith("⚠") and f"of {size:,} characters" in line]
    items = [item for item in plan.items if not item.included and f"of {size:,} characters" in item.why]
    losses = [loss for loss in report.losses if f"of {size:,} characters" in loss.why]
    assert [len(warned), len(items), len(losses)] == ([0, 0, 0] if whole else [1, 1, 1])


def test_the_mark_of_a_cut_is_no_part_of_what_is_shown(store: Store) -> None:
    """A result that is little longer than what a run keeps of it is not cut to more than it has."""
    size = 16_500

    @perdure.tool(effect="read_only")
    def look() -> str:
        return text_of(size)

    agent = Agent(
        "a",
        backend=Script(use("look"), say("Seen."), backend=A),
        tools=[look],
        context=ContextLimits(window=8_000),
    )
    thread = store.thread("t", agent=agent)
    thread.run("Look.")

    cuts = thread.plan(B).cuts

    assert [cut.characters for cut in cuts] == [size]
    assert all(0 < cut.characters_shown < cut.characters for cut in cuts)


def test_sizes_of_cuts_are_characters_in_any_script(store: Store) -> None:
    """A result that a run kept short, of letters with more than one byte, is measured as any other."""
    size = 20_000

    @perdure.tool(effect="read_only")
    def look() -> str:
        return "дождь и ветер, " * (size // 15) + "д" * (size % 15)

    script = Script(use("look"), say("Seen."), backend=A)
    agent = Agent("a", backend=script, tools=[look], context=ContextLimits(window=8_000))
    thread = store.thread("t", agent=agent)
    thread.run("Look.")

    cuts = thread.plan(B).cuts

    assert [cut.characters for cut in cuts] == [size]
    assert all(0 < cut.characters_shown < size for cut in cuts)


def test_the_newest_result_is_kept_longest(store: Store) -> None:
    """Where not all fit, older ones are brief, and the newest is whole."""
    texts = [text_of(9_000).replace("Bergen", f"town{at}") for at in range(5)]

    plan = said(store, *texts, window=16_000).plan(B)

    cut = {each.call for each in plan.cuts}
    assert "c0" in cut
    assert "c4" not in cut
    assert plan.left_out == 0
    assert texts[4][:4_000] in shown(plan.context)


def test_long_arguments_are_shown_whole_where_they_fit(store: Store) -> None:
    """Arguments of calls that are told in sentences are cut for want of room alone."""
    long = "x" * 5_000
    thread = said(store, "Sunny.", window=64_000)
    with thread.change("said") as change:
        change.add(user("And?"))
        change.add(perdure.Message("assistant", (), (perdure.ToolCall("d", "look", f'{{"q": "{long}"}}'),)))
        change.add(answer(("d", "Rain.")))

    assert long in shown(thread.plan(B).context)


def test_other_turns_are_not_cut_for_a_small_result(store: Store) -> None:
    """Control: where all fits nothing is cut, and the tool that reads artifacts is not offered."""
    plan = said(store, text_of(3_000), window=64_000).plan(B)

    assert (plan.cuts, plan.losses and plan.losses[0].what) == ((), "1 tool call")
    assert [tool.name for tool in plan.context.tools] == []


@perdure.tool(effect="read_only")
def fetch(page: int) -> str:
    """Fetch a page."""
    return text_of(12_000).replace("Bergen", f"page {page}")


def reader(*steps: object, backend: str) -> Agent:
    """An agent with a small window that follows a script."""
    script = Script(*steps, backend=backend)  # pyright: ignore[reportArgumentType]
    return Agent("a", backend=script, tools=[fetch], context=ContextLimits(window=6_000))


def reading(store: Store, *steps: object) -> tuple[Thread, Script]:
    """A thread on which pages were fetched by A, and B, which has taken over."""
    first = reader(use("fetch", page=1), use("fetch", page=2), say("Read."), backend=A)
    thread = store.thread("t", agent=first)
    thread.run("Read two pages.")
    other = script_of(reader(*steps, backend=B))
    thread.switch(other)
    return thread, other


def test_what_was_cut_can_be_read_page_by_page(store: Store) -> None:
    """The model asks for the whole by its reference; the call is in the ledger as one that only reads."""
    thread, _ = reading(store)
    (cut, *_) = thread.plan().cuts
    assert cut.reference is not None
    look = use("read_artifact", reference=cut.reference, offset=5_900, limit=400)
    agent = reader(look, say("Found."), backend=B)
    other, thread = script_of(agent), store.thread("t", agent=agent)

    thread.run("What is in the middle?")

    assert "read_artifact" in [tool.name for tool in other.contexts[0].tools]
    assert MIDDLE in shown(other.contexts[1])
    assert "the next page begins at offset 6300" in shown(other.contexts[1])
    assert [(call.tool, call.effect, call.state) for call in thread.calls()][-1:] == [
        ("read_artifact", "read_only", "succeeded")
    ]
    check_pairs(other.contexts[1].messages)


def test_an_artifact_of_another_line_is_not_read(store: Store) -> None:
    """Only what is in this line's history is given: a result on a fork is not."""
    thread, _ = reading(store)
    fork = thread.fork("other")
    fork.switch(Script(use("fetch", page=3), say("Read."), backend=A))
    fork.run("Read page 3.")
    foreign = fork.calls()[-1].result
    agent = reader(use("read_artifact", reference=foreign), say("No."), backend=B)

    store.thread("t", agent=agent).run("Read that.")

    last = script_of(agent).contexts[-1]
    assert "page 3" not in shown(last)
    assert last.messages[-1].tool_results[0].status == "error"


@pytest.mark.parametrize("words", [80, 150, 400, 900])
def test_a_small_window_is_used_before_turns_are_left_out(store: Store, words: int) -> None:
    """At 4,096 tokens no more than a sixth stays free of what may be used, for whoever comes new or is on the line."""
    limits = ContextLimits(window=4_096, turns=40)
    thread = store.thread("t", agent=Agent("a", backend=Script(backend=A), context=limits))
    for turn in range(40):
        with thread.change("said") as change:
            change.add(user(f"Question {turn}?"))
            change.say("assistant", "words " * words)

    for backend in (A, B, "google:gemini-2.5-pro"):
        plan = thread.plan(backend)
        assert plan.budget is not None
        assert any(not item.included for item in plan.items)
        assert plan.tokens + plan.margin >= plan.budget * 5 / 6


def test_contexts_with_cut_results_are_made_again(store: Store) -> None:
    """Byte for byte, with the references and the tool that reads them."""
    thread, other = reading(store, say("One."), say("Two."))
    thread.run("And?")
    thread.run("And then?")

    spoken = [each.commit for each in thread.transcript() if each.role == "assistant"][-2:]

    assert [thread.at(commit).context() for commit in spoken] == other.contexts
    assert thread.plan().cuts


def test_a_step_records_what_was_cut_as_losses(store: Store) -> None:
    """Each step of the new backend says what it was not shown."""
    thread, _ = reading(store, say("One."))
    thread.run("And?")

    losses = thread.losses(thread.transcript()[-1])

    assert any(loss.what == "part of the result of fetch" for loss in losses)


def test_failover_inside_a_turn_shows_results_whole(store: Store) -> None:
    """Who takes over in the middle of a turn is shown what the turn has found, uncut where it fits."""
    first = Script(use("fetch", page=1), perdure.testing.fail(), backend=A)
    spare = Script(say("I go on."), backend=B)
    thread = store.thread("t", agent=Agent("a", backend=first, tools=[fetch], route=perdure.Route([spare])))

    thread.run("Read it.")

    assert MIDDLE in shown(spare.contexts[0])
    assert "left out here" not in shown(spare.contexts[0])


@pytest.mark.parametrize("backend", ["openai-chat:gpt-5.6", "google:gemini-2.5-pro", B])
def test_requests_with_cut_results_are_valid(store: Store, backend: str) -> None:
    """A cut result is still the result of its call."""
    check_valid(said(store, text_of(60_000), text_of(60_000), window=8_192), backend)


@pytest.mark.parametrize("window", [8_192, 128_000, *((1_000_000,) if DEEP else ())])
@pytest.mark.parametrize("size", [16_000, 200_000, 2_000_000])
def test_a_result_of_a_run_crosses_a_switch_whole_where_it_fits(store: Store, size: int, window: int) -> None:
    """Also one that was kept short when it came: its artifact is shown, or the cut is told with its sizes."""

    @perdure.tool(effect="read_only")
    def download() -> str:
        """Download a lot."""
        return text_of(size)

    first = Script(use("download"), say("Done."), backend=A)
    agent = Agent("a", backend=first, tools=[download], context=ContextLimits(window=window))
    thread = store.thread("t", agent=agent)
    thread.run("Get it.")
    other = Script(say("Seen."), backend=B)

    report = thread.switch(other)
    thread.run("And?")

    whole = MIDDLE in shown(other.contexts[0])
    assert whole or not fits_whole(text_of(size), window)
    warned = [line for line in report.lines if line.startswith("⚠") and f"of {size:,} characters" in line]
    losses = [loss for loss in report.losses if f"of {size:,} characters" in loss.why]
    assert [len(warned), len(losses)] == ([0, 0] if whole else [1, 1])
    assert ("read_artifact" in [tool.name for tool in other.contexts[0].tools]) is not whole
    assert thread.at(thread.transcript()[-1].commit).context() == other.contexts[0]


def test_who_is_shown_a_result_in_part_can_read_it_without_a_switch(store: Store) -> None:
    """A result over 16 KiB is shown by head and tail, and the tool that reads the rest is offered from then on."""

    @perdure.tool(effect="read_only")
    def download() -> str:
        """Download a lot."""
        return text_of(40_000)

    script = Script(use("download"), say("Done."), backend=A)
    thread = store.thread("t", agent=Agent("a", backend=script, tools=[download]))
    thread.run("Get it.")

    offered = [[tool.name for tool in context.tools] for context in script.contexts]
    assert offered == [["download"], ["download", "read_artifact"]]
    assert thread.at(thread.transcript()[-1].commit).context() == script.contexts[-1]
