"""The commands about agents: a file goes in, versions of it are kept, and the same file comes out."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure import testing
from perdure.runtime.agent.file import read_definition
from tests.coded import raises
from tests.surfaces.shell import Shell

FILE = """\
apiVersion: perdure.dev/v1alpha1
kind: Agent
metadata:
  name: planner
spec:
  backend: anthropic:claude-sonnet-5-5
  instructions: |
    Plan trips.
    Ask before you pay.
  personality: Dry.
  tools:
    - book
  memory:
    limit: 4
  context:
    turns: 20
  policy:
    approve:
      - images
    block:
      - computer_use
  route:
    fallbacks:
      - openai:gpt-5.6
    triggers:
      - error
  options:
    temperature: 0.2
"""
TOML = """\
apiVersion = "perdure.dev/v1alpha1"
kind = "Agent"

[metadata]
name = "planner"

[spec]
backend = "anthropic:claude-sonnet-5-5"
instructions = "Plan trips.\\nAsk before you pay.\\n"
personality = "Dry."
tools = ["book"]
memory.limit = 4
context.turns = 20
policy = {approve = ["images"], block = ["computer_use"]}
options.temperature = 0.2

[spec.route]
fallbacks = ["openai:gpt-5.6"]
triggers = ["error"]
"""


@pytest.fixture
def applied(empty: Shell) -> Shell:
    """A shell whose store keeps the agent of `FILE`."""
    empty.ok("init")
    (empty.directory / "agent.yaml").write_text(FILE)
    empty.ok("agents", "apply", "-f", "agent.yaml")
    return empty


def test_a_file_that_is_applied_comes_out_again(applied: Shell) -> None:
    """The export is the file that was applied, and applying it changes nothing."""
    exported = applied.ok("agents", "export", "planner").out

    assert exported == FILE
    again = applied.ok("agents", "apply", "-f", "-", "--json", stdin=exported.encode()).json
    assert again["changed"] is False


def test_toml_says_the_same_as_yaml(applied: Shell) -> None:
    """An agent.toml with the same fields is the same version."""
    (applied.directory / "agent.toml").write_text(TOML)

    assert applied.ok("agents", "apply", "-f", "agent.toml", "--json").json["changed"] is False


def test_versions_are_in_the_history(applied: Shell) -> None:
    """Every version can be shown and exported, the newest first."""
    first = applied.ok("agents", "show", "planner", "--json").json["versions"][0]["digest"]
    (applied.directory / "agent.yaml").write_text(FILE.replace("Dry.", "Warm."))
    second = applied.ok("agents", "apply", "-f", "agent.yaml", "--json").json

    versions = applied.ok("agents", "show", "planner", "--json").json["versions"]

    assert [each["digest"] for each in versions] == [second["version"], first]
    assert applied.ok("agents", "export", "planner", "--version", first[:12]).out == FILE
    assert applied("agents", "export", "planner", "--version", "ffff").code == 3


def test_a_run_records_the_version_that_it_used(applied: Shell) -> None:
    """The digest of the definition stands with the run."""

    @perdure.tool(effect="none")
    def book() -> str:
        return "booked"

    with perdure.open(applied.store) as store:
        kept = store.definitions.get("planner")
        agent = kept.agent([book]).on(testing.Script(testing.say("Done.")))
        thread = store.thread("trip", agent=agent)
        thread.run("Go")
        (run,) = thread.runs()

    assert agent.instructions == "Plan trips.\nAsk before you pay.\n\nDry."
    assert run.agent_version == kept.digest
    assert f"version {kept.digest[:12]}" in applied.ok("runs", "show", "trip").out


def test_agents_are_listed_with_what_is_kept(applied: Shell) -> None:
    """Those of a file with their backend, those of code by name."""
    with perdure.open(applied.store) as store:
        store.thread("t", agent="coded")

    agents = applied.ok("agents", "--json").json["agents"]

    assert [(each["name"], each["backend"], each["threads"]) for each in agents] == [
        ("coded", None, 1),
        ("planner", "anthropic:claude-sonnet-5-5", 0),
    ]


def test_state_lives_where_the_file_says(empty: Shell, tmp_path: Path) -> None:
    """A path in object_storage is seen from the file, and the opened store is left alone."""
    empty.ok("init")
    empty.ok("init", "--store", "apart.db")
    (empty.directory / "agent.yaml").write_text(FILE + "  object_storage: apart.db\n")

    empty.ok("agents", "apply", "-f", "agent.yaml")

    assert [each["name"] for each in empty.ok("agents", "--store", "apart.db", "--json").json["agents"]] == [
        "planner"
    ]
    assert empty.ok("agents", "--json").json["agents"] == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  tools:", "  tols:", "line 11: spec.tols: there is no such field"),
        ("  name: planner", "  name: Planner!", "line 4: metadata.name"),
        ("anthropic:claude-sonnet-5-5", "nobody:x", "line 6: spec.backend is refused"),
        ("kind: Agent", "kind: Pod", "line 2: kind: an agent has kind: Agent"),
        ("perdure.dev/v1alpha1", "perdure.dev/v9", "line 1: apiVersion"),
        ("    - book", "    - book\n    - book", "line 13: spec.tools.1: the tool 'book' is there twice"),
        ("    temperature: 0.2", "    temperature: [0.2", "no YAML"),
        (
            "    limit: 4",
            "    limit: -1",
            "line 13: spec.memory is refused; nothing was changed: memory of ContextLimits is a number from 0 on, not -1",
        ),
        (
            "    limit: 4",
            "    limits: 4",
            "line 14: spec.memory.limits: there is no such field; there are limit",
        ),
        (
            "      - computer_use",
            "      - images",
            "line 17: spec.policy is refused; nothing was changed: the policy contradicts itself: 'images'",
        ),
        (
            "      - computer_use",
            "      - vision",
            "line 17: spec.policy is refused; nothing was changed: block of a policy names 'vision'",
        ),
        (
            "      - openai:gpt-5.6",
            "      - nobody:x",
            "line 22: spec.route is refused; nothing was changed: the route names 'nobody:x'",
        ),
        ("      - openai:gpt-5.6", "      - anthropic:claude-sonnet-5-5", "spec.route is refused"),
        (
            "anthropic:claude-sonnet-5-5",
            "anthropic:claude-nope",
            "line 6: spec.backend is refused; nothing was changed: anthropic has no model",
        ),
        ("    - book", "    - os:system", "line 12: spec.tools.0: 'os:system' is no name of a tool"),
        ("      - error", "      - boredom", "spec.route.triggers.0"),
    ],
)
def test_a_malformed_file_changes_nothing(applied: Shell, old: str, new: str, said: str) -> None:
    """The error names the file, the line and the field."""
    (applied.directory / "agent.yaml").write_text(FILE.replace(old, new))
    before = applied.ok("agents", "show", "planner", "--json").json

    ended = applied("agents", "apply", "-f", "agent.yaml")

    assert ended.code == 2
    assert "agent.yaml" in ended.err
    assert said in ended.err
    assert applied.ok("agents", "show", "planner", "--json").json == before


def test_a_tool_that_is_not_given_is_named() -> None:
    """A definition holds no code, so the error says what to give."""
    name, definition = read_definition(FILE)
    from perdure.runtime.agent.file import agent_of

    with raises(perdure.errors.Invalid, "tool_not_given", agent="planner"):
        agent_of(name, definition)


def test_an_unknown_agent_is_not_found(applied: Shell) -> None:
    """Neither shown nor exported."""
    assert applied("agents", "show", "nobody").code == 3
    assert applied("agents", "export", "nobody").code == 3
    assert applied("agents", "apply", "-f", "nowhere.yaml").code == 3


def test_an_agent_that_is_moved_to_its_fallback_can_still_be_taken_up(applied: Shell) -> None:
    """The backend before takes the fallback's place, and the export applies."""
    applied.ok("agents", "switch", "planner", "--to", "openai:gpt-5.6")

    exported = applied.ok("agents", "export", "planner", "--json").json
    assert exported["spec"]["backend"] == "openai:gpt-5.6"
    assert exported["spec"]["route"]["fallbacks"] == ["anthropic:claude-sonnet-5-5"]
    assert (
        applied.ok("agents", "apply", "-f", "-", "--json", stdin=exported["text"].encode()).json["changed"]
        is False
    )
