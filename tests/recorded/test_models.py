"""Every model that recorded traffic names can be asked about."""

from __future__ import annotations

from perdure.providers import catalog
from perdure.providers.registry import APIS
from tests.recorded.wire import Wire

OTHERS = ("groq-chat", "ollama-chat", "cohere-chat", "bedrock-invoke")
FLOOR = 0.65  # of the names that are no mistakes; the rest are old, or of servers that the catalog leaves out


def test_every_recorded_model_has_a_card(wire: Wire) -> None:
    """Known or not: what is not known says so in a note, and most are known."""
    shipped = catalog.shipped()
    named = {(each.provider, each.model) for each in wire.records(*APIS, *OTHERS) if each.model}
    cards = [shipped.card(provider, model) for provider, model in named]

    assert all(card.known or card.note for card in cards)
    known = sum(card.known for card in cards)
    print(f"{known} of {len(cards)} recorded models are known")
    assert known / len(cards) >= FLOOR


def test_most_recorded_traffic_is_with_models_that_are_known(wire: Wire) -> None:
    """Counted by exchange, and among the vendors that the catalog covers."""
    shipped = catalog.shipped()
    covered = {*shipped.models, *shipped.aliases}
    records = [each for each in wire.requests(*APIS) if each.provider in covered and each.model]
    unknown = {
        f"{each.provider}:{each.model}"
        for each in records
        if not shipped.card(each.provider, each.model or "").known
    }
    known = sum(shipped.card(each.provider, each.model or "").known for each in records)
    print(f"{known} of {len(records)} exchanges; unknown are {sorted(unknown)}")
    assert known / len(records) >= 0.95
