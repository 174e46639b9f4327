"""What is known of models: lookups, names without a provider, a user's file laid over it."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import Invalid, NotFound
from perdure.providers import catalog
from perdure.providers.catalog import Card, Prices
from perdure.providers.registry import Target, target
from tests.coded import raises

SHIPPED = catalog.shipped()
OTHER = "claude-sonnet-5-5"


def over(tmp_path: Path, shape: Any) -> catalog.Catalog:
    """The catalog with a user's file over it."""
    path = tmp_path / "models.json"
    path.write_text(shape if isinstance(shape, str) else json.dumps(shape))
    return catalog.read(path)


def test_the_data_says_when_and_where_it_was_got() -> None:
    """A date, and for every model sources that the data explains."""
    assert date.fromisoformat(SHIPPED.date).year >= 2026
    for card in SHIPPED.cards():
        assert card.sources, card.backend
        assert set(card.sources) <= set(SHIPPED.sources), card.backend


@pytest.mark.parametrize(
    "provider",
    ["openai", "anthropic", "google", "mistral", "bedrock", "azure", "deepseek", "xai", "groq", "local"],
)
def test_every_vendor_has_models_and_defaults(provider: str) -> None:
    """None is empty, and each says what to take for an unknown model."""
    assert SHIPPED.cards(provider)
    assert provider in SHIPPED.defaults


def test_every_card_makes_sense() -> None:
    """Limits fit into the window, prices are not negative, what is unconfirmed is the name of a field."""
    fields = {*Card.__struct_fields__, "modalities"}
    for card in SHIPPED.cards():
        assert card.known
        assert 0 < card.input_max <= card.context_window, card.backend
        assert card.output_limit is None or 0 < card.output_limit <= card.context_window, card.backend
        assert "text" in card.input, card.backend
        assert set(card.unconfirmed) <= fields, card.backend
        assert card.prices is None or min(card.prices.input, card.prices.output) >= 0, card.backend


def test_a_window_may_leave_less_room_for_the_request() -> None:
    """The limit of the input is the smaller one, where a vendor sets it."""
    card = SHIPPED.card("openai", "gpt-5")

    assert (card.context_window, card.input_max, card.output_limit) == (400_000, 272_000, 128_000)
    assert (card.tools, card.strict, card.reasoning, card.computer_use) == (True, True, True, False)
    assert card.prices == Prices(input=1.25, output=10, cache_read=0.125)


@pytest.mark.parametrize(
    ("provider", "name", "entry"),
    [
        ("openai", "gpt-5.1-2025-11-13", "gpt-5.1"),
        ("anthropic", "claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("bedrock", "us.amazon.nova-pro-v1:0", "amazon.nova-pro-v1:0"),
        (
            "bedrock",
            "arn:aws:bedrock:us-east-1:000000000000:inference-profile/us.anthropic.claude-sonnet-4-6",
            "anthropic.claude-sonnet-4-6",
        ),
        ("google-vertex", "gemini-2.0-flash-001", "gemini-2.0-flash"),
        ("ollama", "qwen3:8b", "qwen3"),
    ],
)
def test_dates_regions_and_sizes_are_seen_through(provider: str, name: str, entry: str) -> None:
    """The card keeps the name that was asked for, and says whose facts it has."""
    card = SHIPPED.card(provider, name)

    assert (card.known, card.name, card.described_as) == (True, name, entry)


def test_a_model_at_another_server_has_its_makers_facts_but_not_its_prices() -> None:
    """And a note that says so."""
    card = SHIPPED.card("openrouter", "anthropic/claude-haiku-4.5")

    assert card.described_as == "anthropic:claude-haiku-4-5"
    assert card.prices is None
    assert "openrouter" in (card.note or "")


def test_an_unknown_model_gets_its_providers_defaults_and_a_note() -> None:
    """It is not refused: a new model works on the day that it comes out."""
    card = SHIPPED.card("anthropic", "claude-epic-9")

    assert not card.known
    assert card.context_window == SHIPPED.defaults["anthropic"].context_window
    assert card.note == "'claude-epic-9' is not in the catalog: these are the defaults of anthropic"


def test_an_unknown_provider_gets_careful_defaults() -> None:
    """Text, tools and a small window."""
    card = SHIPPED.card("nobody", "nothing")

    assert (card.known, card.context_window, card.input) == (False, 32_768, ("text",))
    assert "careful defaults" in (card.note or "")


@given(st.text(max_size=60), st.text(max_size=300))
def test_no_name_is_too_odd_to_be_asked_for(provider: str, model: str) -> None:
    """Every pair of words has a card."""
    assert SHIPPED.card(provider, model).name == model


def test_long_hostile_names_are_answered_at_once() -> None:
    """Names are cut a few times, not as often as they could be."""
    assert not SHIPPED.card("openai", "gpt-5" + "-2025-01-01" * 20_000).known
    assert not SHIPPED.card("openai", "us." * 50_000).known


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("gpt-5", Target("openai-responses", "openai", "gpt-5")),
        ("gpt-5.1-2025-11-13", Target("openai-responses", "openai", "gpt-5.1-2025-11-13")),
        ("claude-opus-5-5", Target("anthropic-messages", "anthropic", "claude-opus-5-5")),
        ("gemini-2.5-pro", Target("gemini-generate", "google", "gemini-2.5-pro")),
        ("us.amazon.nova-pro-v1:0", Target("bedrock-converse", "bedrock", "us.amazon.nova-pro-v1:0")),
        ("deepseek-v4-pro", Target("openai-chat", "deepseek", "deepseek-v4-pro")),
        ("openai/gpt-oss-120b", Target("openai-chat", "groq", "openai/gpt-oss-120b")),
        ("Phi-4", Target("azure-inference-chat", "azure", "Phi-4")),
    ],
)
def test_a_name_that_is_unique_needs_no_provider(name: str, meant: Target) -> None:
    """Where several have it, its maker is meant."""
    assert target(name) == meant


@pytest.mark.parametrize("name", ["gpt-99", "claude", "", ":", "gpt-5:"])
def test_a_name_that_is_not_known_names_no_backend(name: str) -> None:
    """An unknown name is refused, with or without a colon."""
    with pytest.raises((Invalid, NotFound)) as caught:
        target(name)

    assert caught.value.code in ("backend_name_invalid", "provider_not_found")


def test_a_name_that_several_have_is_refused(tmp_path: Path) -> None:
    """The error says what to write."""
    two = over(tmp_path, {"models": {"anthropic": {"twin": {}}, "mistral": {"twin": {}}}})

    with raises(Invalid, "model_ambiguous", model="twin", choices=["anthropic:twin", "mistral:twin"]):
        two.resolve("twin")


def test_a_file_changes_single_fields(tmp_path: Path) -> None:
    """What it does not say stays as it was shipped."""
    mine = over(tmp_path, {"models": {"openai": {"gpt-5": {"prices": {"input": 1, "output": 2}}}}})

    assert mine.card("openai", "gpt-5").prices == Prices(input=1, output=2)
    assert mine.card("openai", "gpt-5").input_max == 272_000
    assert SHIPPED.card("openai", "gpt-5").prices != Prices(input=1, output=2)


def test_a_file_adds_models_and_providers(tmp_path: Path) -> None:
    """A new model begins with its provider's defaults."""
    mine = over(
        tmp_path,
        {
            "models": {
                "openai": {"ft:mine": {"context_window": 64_000}},
                "basement": {"big": {"tools": True}},
            },
            "defaults": {"basement": {"context_window": 9_000}},
        },
    )

    assert mine.card("openai", "ft:mine").context_window == 64_000
    assert mine.card("openai", "ft:mine").strict
    assert mine.card("basement", "big").context_window == 9_000
    assert mine.card("basement", "other").context_window == 9_000
    assert mine.resolve("big") == "basement:big"


MODEL = ": models.openai.gpt-5"


@pytest.mark.parametrize(
    ("shape", "where"),
    [
        ("{", "models.json'"),
        ("[]", "models.json'"),
        ({"model": {}}, "models.json'"),
        ({"models": {"openai": {"gpt-5": {"window": 5}}}}, MODEL),
        ({"models": {"openai": {"gpt-5": {"context_window": "big"}}}}, MODEL),
        ({"models": {"openai": {"gpt-5": {"context_window": -1}}}}, MODEL),
        ({"models": {"openai": {"gpt-5": {"input": ["smell"]}}}}, MODEL),
        ({"models": {"openai": {"gpt-5": {"prices": {"input": 1}}}}}, MODEL),
        ("[" * 100_000, "models.json'"),
    ],
)
def test_a_file_that_is_no_catalog_is_refused(tmp_path: Path, shape: Any, where: str) -> None:
    """The error says which file, and which model in it."""
    with pytest.raises(Invalid) as caught:
        over(tmp_path, shape)

    assert caught.value.code == "catalog_invalid"
    assert str(caught.value.facts["where"]).endswith(where)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    """It was named, so it has to be there."""
    with raises(NotFound, "catalog_not_found"):
        catalog.read(tmp_path / "nothing.json")
    with raises(NotFound, "catalog_not_found"):
        catalog.read(tmp_path)


def test_the_users_file_is_found_where_the_edge_says(tmp_path: Path) -> None:
    """The variable first, then the usual place, else what is shipped."""
    usual = tmp_path / ".config" / "perdure"
    assert catalog.chosen({}, tmp_path) is SHIPPED

    usual.mkdir(parents=True)
    (usual / "models.json").write_text('{"models": {"openai": {"a": {}}}}')
    other = tmp_path / "other.json"
    other.write_text('{"models": {"openai": {"b": {}}}}')

    assert catalog.chosen({}, tmp_path).card("openai", "a").known
    assert not catalog.chosen({"PERDURE_MODELS": str(other)}, tmp_path).card("openai", "a").known
    assert catalog.chosen({"PERDURE_MODELS": str(other)}, tmp_path).card("openai", "b").known


def test_an_unknown_provider_cannot_be_listed() -> None:
    """The error names what there is."""
    with raises(NotFound, "provider_not_found", provider="nobody"):
        SHIPPED.cards("nobody")


def test_a_backend_is_looked_up_with_or_without_its_provider() -> None:
    """Colons may be part of a model's name."""
    assert SHIPPED.of("openai-chat:gpt-5").context_window == 400_000
    assert SHIPPED.of("gpt-5").provider == "openai"
    assert SHIPPED.of("amazon.nova-lite-v1:0").provider == "bedrock"
    assert not SHIPPED.of("nobody:nothing").known
    assert not SHIPPED.of("nothing").known


def test_the_day_on_which_a_model_ends_is_known() -> None:
    """As its vendor announced it, for its own service alone; a dated name has the day of its model."""
    ends = {model: SHIPPED.card("anthropic", model).ends for model in ("claude-sonnet-4-5-20250929", OTHER)}

    assert ends == {"claude-sonnet-4-5-20250929": "2026-11-30", OTHER: None}
    assert SHIPPED.card("openrouter", "anthropic/claude-sonnet-4.5").ends is None
    assert all(date.fromisoformat(card.ends) for card in SHIPPED.cards() if card.ends)


def test_a_day_that_is_none_is_refused(tmp_path: Path) -> None:
    """In a user's own file."""
    with pytest.raises(Invalid):
        over(tmp_path, {"models": {"openai": {"gpt-5.6": {"ends": "soon"}}}})


@pytest.mark.parametrize(
    ("family", "model"),
    [
        ("claude-sonnet", "anthropic:claude-sonnet-5-5"),
        ("anthropic:claude-haiku", "anthropic:claude-haiku-5-5"),
        ("gemini-flash", "google:gemini-3.8-flash"),
        ("openai-chat:gpt-luna", "openai-chat:gpt-6-luna"),
        ("grok", "xai:grok-4.7"),
        ("claude", None),
        ("nobody:claude-sonnet", None),
    ],
)
def test_a_family_has_a_current_model(family: str, model: str | None) -> None:
    """The newest of the maker that is neither deprecated nor about to end."""
    assert SHIPPED.current(family) == model


def test_a_model_that_ends_is_not_current(tmp_path: Path) -> None:
    """The one before it is, where its end is announced."""
    ended = over(tmp_path, {"models": {"anthropic": {"claude-sonnet-5-5": {"ends": "2027-01-01"}}}})

    assert ended.current("claude-sonnet") == "anthropic:claude-sonnet-5"
