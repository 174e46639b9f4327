"""An image, strict JSON and a computer-use tool, on targets that do not have them, are graded and say so.

The same lines stand in a dry run, in the report and in the commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Message, Policy, Store, Text
from perdure.errors import Refused
from perdure.model.event import BackendSwitched
from perdure.testing import Script, say
from tests.coded import raises
from tests.surfaces.shell import Shell
from tests.switching.scenes import Answer, committed, looked, researcher

SEED = Path(__file__).resolve().parents[3] / "shared" / "seeds"
SIX = """\
Compatibility check:
✓ Text conversation supported
✓ MCP tools supported
✓ 200k context sufficient
⚠ JSON schema strict mode differs (loose-parse fallback)
⚠ Previous turn used image input; image format will be transformed
✗ Computer-use tool unavailable; tool will be removed for this conversation
"""
CLAUDE = "anthropic:claude-sonnet-4-0"
OUTPUT: dict[str, Any] = {"output": {"schema": {"type": "object"}, "name": "city", "strict": True}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store in a file."""
    with perdure.open(tmp_path / "perdure.db") as opened:
        yield opened


def test_the_six_lines_are_the_seed_s_own(store: Store) -> None:
    """A conversation with MCP tools, a schema, a picture and a computer-use tool is graded line by line."""
    thread = looked(store.thread("conv-123", agent=researcher()))

    report = thread.check_switch(CLAUDE, output=Answer)

    assert "\n".join(report.lines) + "\n" == SIX
    assert report.ok


@pytest.mark.skipif(not SEED.is_dir(), reason="the document is not here")
def test_the_six_lines_are_those_of_the_document() -> None:
    """What is compared with above is what was published."""
    text = next(SEED.glob("000_*")).read_text()

    assert SIX in text


def test_on_a_backend_that_has_it_all_nothing_is_lost(store: Store) -> None:
    """Control: on the same wire format, with a model that has strict JSON, all of it is kept but the computer."""
    thread = looked(store.thread("conv-123", agent=researcher()))

    report = thread.check_switch("openai:gpt-5.4-mini", output=Answer)

    marks = {item.topic: item.mark for item in report.items}
    assert marks == {
        "text": "kept",
        "mcp_tools": "kept",
        "context": "kept",
        "strict_json": "kept",
        "images": "kept",
        "computer_use": "removed",
    }


def test_a_picture_is_removed_where_nobody_can_see_it(store: Store) -> None:
    """Without vision it is named in words: ✗ in the dry run, in the report and in the commit."""
    thread = looked(store.thread("conv-123", agent=researcher(options={}, tools=[])))
    blind = Script(say("I see nothing."), backend="openai:gpt-5.4-mini", lacks=["images"])
    line = "✗ Previous turn used image input; image input unavailable, it will be named in words"

    dry = thread.check_switch(blind)
    made = thread.switch(blind)

    for report in (dry, made, committed(thread)):
        assert line in report.lines
    assert committed(thread).items == made.items == dry.items


def test_an_older_picture_is_said_to_be_older(store: Store) -> None:
    """Only what was shown last is the previous turn's."""
    script = Script(say("A dot."), say("You are welcome."), backend="openai:gpt-5.6")
    thread = looked(store.thread("conv-123", agent=researcher(script, options={}, tools=[])))
    thread.run("Thank you")

    images = thread.check_switch(CLAUDE).of("images")

    assert images is not None
    assert images.line == "⚠ An earlier turn used image input; image format will be transformed"


def test_strict_json_falls_back_to_a_loose_parse_that_works(store: Store) -> None:
    """⚠ in the report, and what the new model says in its own way is read all the same."""
    thread = store.thread("conv-123", agent=researcher(options=OUTPUT, tools=[]))
    thread.run("Which city?")
    loose = Script(say('```json\n{"city": "Oslo"}\n```'), backend=CLAUDE)

    report = thread.switch(loose)

    strict = report.of("strict_json")
    assert strict is not None
    assert (strict.mark, strict.fallback) == ("converted", "loose-parse")
    assert thread.run("Which city?", output=Answer).output == Answer("Oslo")


def test_a_computer_tool_is_not_in_the_next_request(store: Store) -> None:
    """✗ means that: the request for the new backend does not declare it, and the loss is listed."""
    thread = store.thread("conv-123", agent=researcher(tools=[]))
    thread.run("Hello")

    report = thread.check_switch(CLAUDE)
    body = thread.render(CLAUDE).body

    assert "computer" not in str(body)
    assert [loss.where for loss in report.losses if "openai-responses" in loss.where]
    assert "computer_use_preview" in str(thread.render("openai:gpt-5.4-mini").body)


def test_what_a_policy_blocks_is_refused_and_says_what_to_change(store: Store) -> None:
    """The thread stays where it is, to the byte."""
    agent = researcher(policy=Policy(block=["removed"]))
    thread = looked(store.thread("conv-123", agent=agent))
    before = thread.head

    with pytest.raises(Refused) as refused:
        thread.switch(CLAUDE)

    assert isinstance(refused.value.report, perdure.Report)
    assert refused.value.report.outcome == "blocked"
    assert "computer_use" in [item.topic for item in refused.value.report.items if item.gate == "block"]
    assert thread.head == before
    assert thread.backend == "openai:gpt-5.6"


def test_what_needs_an_approval_is_let_pass_by_name(store: Store) -> None:
    """Refused without a name; with one the commit says who."""
    thread = looked(store.thread("conv-123", agent=researcher(policy=Policy(approve=["computer_use"]))))

    with raises(Refused, "switch_needs_approval") as refused:
        thread.switch(CLAUDE)
    assert isinstance(refused.value.report, perdure.Report)
    assert refused.value.report.outcome == "approval"
    thread.switch(Script(say("Hello."), backend=CLAUDE), approved_by="ann")

    assert committed(thread).approved_by == "ann"
    assert [event.by for event in thread.log(limit=1)[0].events if isinstance(event, BackendSwitched)] == [
        "ann"
    ]


def test_a_dry_run_on_the_command_line_is_what_the_document_shows(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`agents switch NAME --to BACKEND --dry-run` prints the six lines and nothing else, and changes nothing."""
    monkeypatch.chdir(tmp_path)
    thread = store.thread("conv-123", agent=researcher(options={**OUTPUT, **researcher().options}))
    looked(thread)
    before = thread.head
    (tmp_path / "its_code.py").write_text(
        "from tests.switching.scenes import researcher\n"
        "from tests.switching.test_graded import OUTPUT\n"
        "agent = researcher(options={**OUTPUT, **researcher().options})\n"
    )

    ended = Shell(tmp_path, capsys, monkeypatch).ok(
        "agents", "switch", "researcher", "--to", CLAUDE, "--dry-run", "--code", "its_code:agent"
    )

    assert ended.out == SIX
    assert thread.head == before


def test_a_blocked_dry_run_exits_with_five(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a script can ask before it acts; the same command without the block ends with 0."""
    monkeypatch.chdir(tmp_path)
    looked(store.thread("conv-123", agent=researcher()))
    (tmp_path / "strict_code.py").write_text(
        "from perdure import Policy\nfrom tests.switching.scenes import researcher\n"
        "agent = researcher(policy=Policy(block=['computer_use']))\nlax = researcher()\n"
    )
    shell = Shell(tmp_path, capsys, monkeypatch)
    words = ("threads", "switch", "conv-123", "--to", CLAUDE, "--dry-run", "--code")

    codes = [shell(*words, f"strict_code:{name}").code for name in ("agent", "lax")]

    assert codes == [5, 0]


def test_words_beside_a_picture_stay(store: Store) -> None:
    """Where a picture is removed, what was said with it is not."""
    thread = store.thread("conv-123", agent=researcher(options={}, tools=[]))
    looked(thread)
    blind = Script(say("Which picture?"), backend="script:blind", lacks=["images"])

    thread.switch(blind)
    thread.run(Message("user", (Text("And now?"),)))

    assert "What is on this picture?" in "".join(message.text for message in blind.contexts[0].messages)
