"""The commands about models: what is known, what is not, and a user's own file."""

from __future__ import annotations

import json

import pytest

from tests.surfaces.shell import Shell


@pytest.fixture
def home(empty: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell of a user without a file of models, and without a store."""
    monkeypatch.setenv("HOME", str(empty.directory))
    monkeypatch.delenv("PERDURE_MODELS", raising=False)
    return empty


def test_models_are_listed_by_provider(home: Shell) -> None:
    """With limits, abilities and prices; a bare noun lists, too."""
    listed = home.ok("models", "ls", "anthropic").out

    assert "anthropic:claude-opus-5-5" in listed
    assert "openai:" not in listed
    assert "1M" in listed
    assert "$20.00" in listed
    assert home.ok("models").out.splitlines()[0].split()[:3] == ["model", "window", "output"]


def test_a_long_list_says_that_it_goes_on(home: Shell) -> None:
    """And goes on if asked; deprecated models are left out unless they are asked for."""
    some = home.ok("models", "ls", "--json").json
    every = home.ok("models", "ls", "--limit", "0", "--json").json
    old_too = home.ok("models", "ls", "--limit", "0", "--all", "--json").json

    assert (len(some["models"]), some["more"], every["more"]) == (100, True, False)
    assert 100 < len(every["models"]) < len(old_too["models"])
    assert "--limit 0" in home.ok("models").out


def test_one_model_is_shown_with_all_that_is_known(home: Shell) -> None:
    """By its backend, or by its name alone."""
    shown = home.ok("models", "show", "openai:gpt-5.4-mini", "--json").json
    model = shown["model"]

    assert shown["date"]
    assert (model["backend"], model["known"], model["context_window"]) == (
        "openai:gpt-5.4-mini",
        True,
        400_000,
    )
    assert model["prices"] == {"input": 0.75, "output": 4.5, "cache_read": 0.075, "cache_write": None}
    assert home.ok("model", "show", "gpt-5.4-mini", "--json").json["model"] == model
    people = home.ok("models", "show", "gpt-5.4-mini").out
    assert "400,000 tokens" in people
    assert "at most 272,000 tokens" in people
    assert "$0.75 in, $4.50 out, $0.075 from the cache for a million tokens" in people


def test_what_is_doubtful_is_said(home: Shell) -> None:
    """A field that one source alone gives, and a model that is described by another's entry."""
    assert "Only one source says: computer_use." in home.ok("models", "show", "claude-opus-5-5").out
    assert (
        "Described as anthropic:claude-haiku-4-5"
        in home.ok("models", "show", "openrouter:anthropic/claude-haiku-4.5").out
    )


def test_an_unknown_model_is_shown_with_defaults_and_a_note(home: Shell) -> None:
    """It is no error where its provider is known: a model may be newer than the catalog."""
    assert (
        "! 'gpt-99' is not in the catalog: these are the defaults of openai."
        in home.ok("models", "show", "openai:gpt-99").out
    )
    assert home.ok("models", "show", "openai:gpt-99", "--json").json["model"]["known"] is False


@pytest.mark.parametrize("name", ["nope", "nobody:nope"])
def test_an_unknown_model_of_no_provider_is_not_found(home: Shell, name: str) -> None:
    """No limit is shown for it, since nothing is known of it and no defaults are its own."""
    ended = home("models", "show", name, "--json")

    assert (ended.code, ended.out, ended.error["code"]) == (3, "", "model_not_found")
    assert ended.error["facts"]["near"] == []


def test_a_mistyped_model_is_not_found_and_near_names_are_told(home: Shell) -> None:
    """In the sentence and as a fact."""
    ended = home("models", "show", "gpt-5.4-mni")

    assert (ended.code, ended.out) == (3, "")
    assert "Did you mean openai:gpt-5.4-mini" in ended.err


def test_an_unknown_provider_has_no_list(home: Shell) -> None:
    """The error names those that have one."""
    ended = home("models", "ls", "nobody")

    assert ended.code == 3
    assert "no models of 'nobody'" in ended.err


def test_a_file_of_ones_own_is_laid_over_what_is_shipped(
    home: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the usual place, or where the variable says."""
    usual = home.directory / ".config" / "perdure" / "models.json"
    usual.parent.mkdir(parents=True)
    usual.write_text(json.dumps({"models": {"openai": {"gpt-5.4-mini": {"output_limit": 7}, "mine": {}}}}))

    assert home.ok("models", "show", "gpt-5.4-mini", "--json").json["model"]["output_limit"] == 7
    assert home.ok("models", "show", "mine", "--json").json["model"]["backend"] == "openai:mine"

    (home.directory / "other.json").write_text(
        json.dumps({"models": {"openai": {"gpt-5.4-mini": {"output_limit": 8}}}})
    )
    monkeypatch.setenv("PERDURE_MODELS", "other.json")
    assert home.ok("models", "show", "gpt-5.4-mini", "--json").json["model"]["output_limit"] == 8


@pytest.mark.parametrize(
    ("content", "code"), [(None, 3), ("{", 2), ('{"models": {"x": {"y": {"z": 1}}}}', 2)]
)
def test_a_file_that_cannot_be_used_is_an_error(
    home: Shell, monkeypatch: pytest.MonkeyPatch, content: str | None, code: int
) -> None:
    """It says which file, and nothing is listed without it."""
    monkeypatch.setenv("PERDURE_MODELS", "mine.json")
    if content is not None:
        (home.directory / "mine.json").write_text(content)

    ended = home("models", "ls")

    assert (ended.code, ended.out) == (code, "")
    assert "mine.json" in ended.err


def test_names_from_a_file_cannot_speak_to_the_terminal(home: Shell) -> None:
    """They are shown by their codes."""
    usual = home.directory / ".config" / "perdure" / "models.json"
    usual.parent.mkdir(parents=True)
    usual.write_text(json.dumps({"models": {"openai": {"\x1b[2Jgone": {"note": "\x1b]0;x\x07"}}}}))

    shown = home.ok("models", "ls", "openai").out + home.ok("models", "show", "openai:\x1b[2Jgone").out
    assert "\x1b" not in shown


def test_the_end_of_a_model_is_listed_and_shown(home: Shell) -> None:
    """The day on which its vendor stops serving it."""
    listed = home.ok("models", "ls", "anthropic").out
    (line,) = (each for each in listed.splitlines() if "claude-sonnet-4-5" in each)

    assert line.endswith("until 2026-11-30")
    assert "until 2026-11-30" in home.ok("models", "show", "claude-sonnet-4-5").out
    assert home.ok("models", "show", "claude-sonnet-5-5", "--json").json["model"]["ends"] is None
