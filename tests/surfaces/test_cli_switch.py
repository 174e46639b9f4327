"""Switching on the command line: one thread, every thread of an agent, and the route that a run took."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Backend, Image, Message, Policy, Route, Store
from perdure.cli.hints import Subject, advice_for
from perdure.errors import ServerChanged
from perdure.testing import Script, fail, say, use
from tests.surfaces.shell import Shell

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)
A, B = "openai:gpt-5.6", "anthropic:claude-sonnet-5-5"
YAML = """\
apiVersion: perdure.dev/v1alpha1
kind: Agent
metadata: {{name: kept}}
spec: {{backend: "{backend}", instructions: Be brief.{more}}}
"""


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell in a directory with a store."""
    monkeypatch.chdir(tmp_path)
    perdure.open(tmp_path / "perdure.db").close()
    return Shell(tmp_path, capsys, monkeypatch)


@pytest.fixture
def filled(shell: Shell) -> Callable[[str, str], None]:
    """Puts a thread of an agent into the store, with a turn on A."""

    def fill(thread: str, agent: str) -> None:
        with perdure.open(shell.store) as store:
            found = store.thread(thread, agent=Agent(agent, backend=Script(say("Hello."), backend=A)))
            found.run("Hello")

    return fill


def backends(store: Store) -> dict[str, str | None]:
    """Who has each thread."""
    return {thread.id: thread.backend for thread in store.threads()}


def apply(shell: Shell, backend: str = A, more: str = "") -> None:
    """Keep the agent as a file."""
    (shell.directory / "agent.yaml").write_text(YAML.format(backend=backend, more=more))
    shell.ok("agents", "apply", "-f", "agent.yaml")


def test_a_thread_is_switched_and_the_sentence_ends_with_the_commit(
    shell: Shell, filled: Callable[[str, str], None]
) -> None:
    """The check first, then what was done; undo takes it back."""
    filled("trip", "planner")

    ended = shell.ok("threads", "switch", "trip", "--to", "claude-sonnet-5-5", "--reason", "cheaper")

    lines = ended.out.splitlines()
    assert lines[:2] == ["Compatibility check:", "✓ Text conversation supported"]
    with perdure.open(shell.store) as store:
        head = store.thread("trip").head.commit or ""
        assert lines[-1].startswith(f"Switched main of trip to {B}, with chk-")
        assert lines[-1].endswith(head[:12])
        assert store.thread("trip").switches()[-1].reason == "cheaper"
    shell.ok("threads", "undo", "trip")
    with perdure.open(shell.store) as store:
        assert backends(store) == {"trip": A}


def test_a_dry_run_changes_nothing_and_needs_no_right_to_write(
    shell: Shell, filled: Callable[[str, str], None]
) -> None:
    """Its JSON is the whole report."""
    filled("trip", "planner")
    with perdure.open(shell.store) as store:
        before = store.thread("trip").head

    told = shell.ok("threads", "switch", "trip", "--to", B, "--dry-run", "--json").json

    assert (told["dry_run"], told["switched"], told["report"]["ok"]) == (True, False, True)
    assert [item["topic"] for item in told["report"]["items"]] == ["text", "context"]
    with perdure.open(shell.store) as store:
        assert store.thread("trip").head == before


@pytest.mark.parametrize(
    ("to", "code", "says"),
    [
        ("nobody:model", 3, "no provider is called 'nobody'"),
        ("openai:gpt-nonsense", 3, "gpt-nonsense"),
        ("nonsense", 2, "names no backend"),
        ("claude-sonet", 2, "Did you mean anthropic:claude-sonnet-"),
    ],
)
def test_a_backend_that_cannot_be_is_an_error_and_nothing_is_changed(
    shell: Shell, filled: Callable[[str, str], None], to: str, code: int, says: str
) -> None:
    """An unknown provider, an unknown model, a name that is none."""
    filled("trip", "planner")

    ended = shell("threads", "switch", "trip", "--to", to)

    assert (ended.code, says in ended.err) == (code, True)
    with perdure.open(shell.store) as store:
        assert backends(store) == {"trip": A}


def test_a_missing_package_is_named(
    shell: Shell, filled: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to install; nothing is changed."""
    filled("trip", "planner")
    monkeypatch.setattr("perdure.runtime.inference.switch.find_spec", lambda name: None)

    ended = shell("threads", "switch", "trip", "--to", B)

    assert ended.code == 1
    assert "pip install 'perdure[anthropic]'" in ended.err
    with perdure.open(shell.store) as store:
        assert backends(store) == {"trip": A}


def test_every_thread_of_an_agent_is_switched_and_no_other(
    shell: Shell, filled: Callable[[str, str], None]
) -> None:
    """One report a thread; an agent that is declared in code keeps its code's default, and the answer says so."""
    for thread, agent in (("one", "planner"), ("two", "planner"), ("three", "other")):
        filled(thread, agent)

    ended = shell.ok("agents", "switch", "planner", "--to", B)

    assert ended.out.count("Compatibility check:") == 2
    assert "Switched 2 of 2 threads" in ended.out
    assert "declared there" in ended.out
    with perdure.open(shell.store) as store:
        assert backends(store) == {"one": B, "two": B, "three": A}


def test_the_default_of_an_agent_that_is_kept_changes_too(
    shell: Shell, filled: Callable[[str, str], None]
) -> None:
    """New threads begin on the new backend; on a dry run nothing changes."""
    apply(shell)
    filled("one", "kept")

    shell.ok("agents", "switch", "kept", "--to", B, "--dry-run")
    with perdure.open(shell.store) as store:
        assert store.definitions.get("kept").definition.backend == A
    ended = shell.ok("agents", "switch", "kept", "--to", B)

    assert f"New threads begin on {B}." in ended.out
    with perdure.open(shell.store) as store:
        assert store.definitions.get("kept").definition.backend == B
        assert backends(store) == {"one": B}


def test_where_a_thread_is_refused_the_default_stays(
    shell: Shell, filled: Callable[[str, str], None]
) -> None:
    """The policy of the file counts, the exit code is 5, and the others are switched all the same."""
    apply(shell, more=", policy: {block: [images]}")
    filled("one", "kept")
    with perdure.open(shell.store) as store:
        script = Script(say("A dot."), backend=A)
        seen = store.thread("two", agent=Agent("kept", backend=script))
        seen.run(perdure.Message("user", (perdure.Image("https://example.org/a.png", "image/png"),)))

    ended = shell("agents", "switch", "kept", "--to", "groq:llama-3.3-70b-versatile")

    assert ended.code == 5
    assert "image input unavailable" in ended.out
    assert f"New threads begin on {A} still" in ended.out
    with perdure.open(shell.store) as store:
        assert backends(store) == {"one": "groq:llama-3.3-70b-versatile", "two": A}
        assert store.definitions.get("kept").definition.backend == A


def test_an_agent_that_is_not_there_is_not_found(shell: Shell) -> None:
    """And the ones that are there are named."""
    ended = shell("agents", "switch", "nobody", "--to", B)

    assert (ended.code, "there is no agent 'nobody'" in ended.err) == (3, True)


def test_a_thread_under_a_run_is_a_conflict(shell: Shell, filled: Callable[[str, str], None]) -> None:
    """A run that was cut off is in the way until it is resumed."""
    with perdure.open(shell.store) as store:
        thread = store.thread("trip", agent=Agent("planner", backend=Script(say("Hello."), backend=A)))
        thread.run("Hello")
        space = thread._space  # pyright: ignore[reportPrivateUsage]
        from perdure.runtime.session import lease, records

        taking = lease.taking(space, "main", thread.runs()[0].id, 60.0, None)
        records.apply(space, "held", taking)

    ended = shell("threads", "switch", "trip", "--to", B)

    assert (ended.code, "switch is not possible now" in ended.err) == (4, True)


def test_a_run_explains_the_route_that_it_took(shell: Shell) -> None:
    """Who took over, why, who was passed over, and that nothing was replayed."""

    @perdure.tool(effect="external_write")
    def pay(to: str) -> str:
        """Pay somebody."""
        return f"paid {to}"

    lacking = Script(backend="script:lacking", lacks=["structured_output"])
    route = Route([lacking, Script(say("Paid."), backend=B)], requires=["structured_output"])
    primary = Script(use("pay", to="ann"), fail(), backend=A)
    with perdure.open(shell.store) as store:
        agent = Agent("payer", backend=primary, tools=[pay], route=route)
        store.thread("rent", agent=agent).run("Pay Ann")

    shown = shell.ok("runs", "show", "rent").out
    answer = shell.ok("runs", "show", "rent", "--json").json
    (step,) = answer["route"]

    assert f"route {A} → {B}" in shown
    assert "failover, error: ConnectionError" in shown
    assert "passed over script:lacking" in shown
    assert "nothing is replayed" in shown
    assert (step["from_backend"], step["to_backend"]) == (A, B)
    assert answer["run"]["backend"] == B
    assert f"payer on {B}" in shown


def test_the_policy_of_code_counts_where_the_code_is_not_at_hand(shell: Shell) -> None:
    """It was recorded when the code declared it; naming the agent alone takes nothing back."""
    with perdure.open(shell.store) as store:
        strict = Agent(
            "strict",
            backend=Script(say("Hello."), backend="openai:gpt-5.6"),
            policy=Policy(block=["removed"]),
        )
        thread = store.thread("t", agent=strict)
        thread.run("Hello")
        digest = thread.artifacts.put(PNG, media_type="image/png")
        with thread.change("picture") as change:
            change.add(Message("user", (Image(f"artifact://sha256/{digest}", "image/png"),)))

    for _ in range(2):
        ended = shell("agents", "switch", "strict", "--to", "openai:gpt-5.1-codex")

        assert ended.code == 5
    with perdure.open(shell.store) as store:
        assert store.thread("t").backend == "openai:gpt-5.6"


@pytest.mark.parametrize("command", ["threads switch t", "agents switch planner"])
def test_the_name_of_a_family_is_its_current_model(
    command: str, shell: Shell, filled: Callable[[str, str], None]
) -> None:
    """The command says which, on the error stream, and the report has the whole name."""
    filled("t", "planner")

    ended = shell(*command.split(), "--to", "claude-sonnet", "--dry-run", "--json")

    assert "anthropic:claude-sonnet-5-5" in ended.err
    assert '"to_backend": "anthropic:claude-sonnet-5-5"' in ended.out.replace('":"', '": "')


def test_threads_of_an_agent_at_another_server_are_left_alone(shell: Shell) -> None:
    """A switch of all to the backend that one is on already, elsewhere, would send its conversation away."""
    private = Backend(A, base_url="https://llm.example.com/v1")
    with perdure.open(shell.store) as store:
        store.thread("private", agent=Agent("planner")).switch(private)

    ended = shell("agents", "switch", "planner", "--to", A, "--json")

    (told,) = ended.json["threads"]
    assert (told["switched"], told["exit_code"], ended.code) == (False, 5, 5)


PROXY, VENDOR, ANTHROPIC = (
    "https://llm.example.com/v1",
    "https://api.openai.com/v1",
    "https://api.anthropic.com",
)


@pytest.fixture
def private(shell: Shell) -> Shell:
    """A shell with a thread on A at a server of its own."""
    with perdure.open(shell.store) as store:
        store.thread("private", agent=Agent("planner")).switch(Backend(A, base_url=PROXY))
    return shell


@pytest.mark.parametrize("to", [A, "openai:gpt-5.4", "openai-chat:gpt-5.4", B])
def test_a_name_alone_takes_no_conversation_to_the_vendor(private: Shell, to: str) -> None:
    """The thread is at an address of its own, and the command says which option names which server.

    The SDK of Anthropic adds /v1 to an address, so the option for the same server has none.
    """
    ended = private("threads", "switch", "private", "--to", to)

    assert ended.code == 5
    assert f"add --base-url {PROXY.removesuffix('/v1') if to == B else PROXY}. " in ended.err
    assert f"add --base-url {ANTHROPIC if to == B else VENDOR}" in ended.err
    with perdure.open(private.store) as store:
        assert store.thread("private").server == PROXY


def test_a_dry_run_needs_no_server(private: Shell) -> None:
    """It sends nothing, so it checks what the name means, and notes that the switch has to name a server."""
    ended = private.ok("threads", "switch", "private", "--to", B, "--dry-run")

    words = " ".join(ended.out.split())
    assert f"{B} without an address is at {ANTHROPIC}, so the switch itself has to say which server" in words
    assert private("threads", "switch", "private", "--to", B).code == 5


@pytest.mark.parametrize("server", [PROXY, VENDOR])
def test_an_address_that_is_given_is_where_the_thread_goes(private: Shell, server: str) -> None:
    """The one it was at, or the vendor's; the answer says which."""
    ended = private.ok("threads", "switch", "private", "--to", "openai:gpt-5.4", "--base-url", server)

    assert f"Requests go to {server}." in ended.out
    declared = f'declare Backend("openai:gpt-5.4", base_url="{server}")'
    assert (declared in " ".join(ended.out.split())) is (
        server == PROXY
    )  # the name alone leads to the vendor
    with perdure.open(private.store) as store:
        thread = store.thread("private")
        assert (thread.backend, thread.server) == ("openai:gpt-5.4", server)


def test_code_that_declares_the_address_is_not_asked_to(
    private: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the same switch by the name of the agent alone, which says what to write."""
    (private.directory / "planning.py").write_text(
        "from perdure import Agent, Backend\n"
        f"planner = Agent('planner', backend=Backend('openai:gpt-5.4', base_url={PROXY!r}))\n"
    )
    monkeypatch.syspath_prepend(private.directory)
    command = ("threads", "switch", "private", "--to", "openai:gpt-5.4", "--base-url", PROXY, "--json")

    named = private.ok(*command, "--dry-run").json
    coded = private.ok(*command, "--code", "planning:planner").json

    assert named["declare"] == f'Backend("openai:gpt-5.4", base_url="{PROXY}")'
    assert (coded["switched"], coded["declare"]) == (True, None)


def test_a_run_that_was_refused_for_its_server_took_no_step(private: Shell) -> None:
    """It is not said to be on no backend; what it needs is in its reason."""
    agent = Agent("planner", backend=Backend(A, base_url=VENDOR))
    with perdure.open(private.store) as store:
        store.thread("private").start("Hello")
        store.work([agent], until_idle=True)

    shown = private.ok("runs", "show", "private").out

    assert "planner (no step was taken)" in shown
    assert "no backend" not in shown


def test_the_check_names_the_server_that_is_left(private: Shell) -> None:
    """Control: with an address nothing is in doubt, and the check names both servers."""
    ended = private.ok("threads", "switch", "private", "--to", B, "--base-url", "https://api.anthropic.com")

    assert f"Conversation leaves its server {PROXY} for https://api.anthropic.com" in " ".join(
        ended.out.split()
    )


def test_the_server_that_the_history_knows_under_the_name_is_advised_first(private: Shell) -> None:
    """Neither the server that the thread is on nor the vendor's is where it came from."""
    other = "https://claude.example.com"
    private.ok("threads", "switch", "private", "--to", B, "--base-url", other)

    ended = private("threads", "switch", "private", "--to", A)

    told = " ".join(ended.err.split())
    assert ended.code == 5
    assert f"Before, {A} was at {PROXY}." in told
    options = [told.index(f"add --base-url {each}") for each in (PROXY, other, VENDOR)]
    assert options == sorted(options)


def test_a_name_takes_a_conversation_from_one_vendor_to_another(shell: Shell) -> None:
    """Control: both names say where it goes, and nothing more is asked."""
    with perdure.open(shell.store) as store:
        store.thread("public", agent=Agent("planner")).switch(A)

    ended = shell.ok("threads", "switch", "public", "--to", B)

    assert f"Requests go to {ANTHROPIC}." in ended.out


def test_a_definition_is_not_moved_to_an_address(private: Shell) -> None:
    """A file names a backend and no address, so that new threads would go to the vendor."""
    apply(private, backend=A)
    with perdure.open(private.store) as store:
        store.thread("own", agent=Agent("kept")).switch(Backend(A, base_url=PROXY))

    ended = private.ok("agents", "switch", "kept", "--to", "openai:gpt-5.4", "--base-url", PROXY)

    assert f"New threads begin on {A} still" in ended.out


def test_the_remedy_of_a_changed_server_can_be_typed() -> None:
    """It names the address that the request would have gone to."""
    error = ServerChanged(A, recorded=PROXY, resolved=VENDOR, thread="private")

    advice = advice_for(error, Subject(thread="private"))

    assert f"`perdure threads switch private --to {A} --base-url {VENDOR}`" in advice
