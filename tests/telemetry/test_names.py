"""Every name that telemetry uses is in the pinned convention of OpenTelemetry, or is our own and documented."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import msgspec
import opentelemetry.semconv._incubating.attributes as incubating
import opentelemetry.semconv.attributes as stable
import pytest
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.schemas import Schemas

from perdure import Store
from perdure.telemetry import convention, thread_spans
from perdure.telemetry.metrics import METRICS
from tests.telemetry import scenes

PAGE = Path(__file__).parents[2] / "docs/how-to/see-runs-in-your-tracing-system.md"


def attributes_of_convention() -> set[str]:
    """Every attribute that the released package names."""
    return {
        value
        for package in (incubating, stable)
        for module in iter_modules(package.__path__, f"{package.__name__}.")
        for name, value in vars(import_module(module.name)).items()
        if name.isupper() and isinstance(value, str)
    }


def unknown(names: set[str]) -> set[str]:
    """The names that are neither the convention's nor ours."""
    return {name for name in names - attributes_of_convention() if not name.startswith("perdure.")}


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Every attribute of every span, event and link of the scenes, with all content."""
    import perdure

    with perdure.open(tmp_path_factory.mktemp("names") / "store.db") as store:
        for scene in scenes.SCENES:
            scene(store)
        spans = [span for thread in store.threads() for span in thread_spans(thread, content="text")]
    found = {key for span in spans for key in span.attributes}
    return found | {key for span in spans for event in span.events for key in event.attributes}


def test_every_attribute_is_in_the_convention_or_ours(used: set[str]) -> None:
    """No span has an attribute of another name."""
    assert len(used) > 20
    assert unknown(used) == set()


def test_the_names_of_the_convention_are_in_the_released_package() -> None:
    """The constants are spelled as the convention spells them."""
    assert unknown(set(convention.ALL_ATTRIBUTES)) == set()
    values = vars(import_module(f"{incubating.__name__}.gen_ai_attributes"))
    assert set(convention.OPERATIONS) <= {each.value for each in values["GenAiOperationNameValues"]}
    assert set(convention.PROVIDERS.values()) <= {each.value for each in values["GenAiProviderNameValues"]}
    assert convention.SCHEMA_URL in {each.value for each in Schemas}
    measured = vars(gen_ai_metrics).values()
    assert {convention.STEP_DURATION, convention.TOKEN_USAGE} <= {
        each for each in measured if isinstance(each, str)
    }


def test_a_name_of_nobody_would_be_found() -> None:
    """Control: a misspelled attribute is neither the convention's nor ours."""
    assert unknown({"gen_ai.conversation.id", "gen_ai.conversation", "perdure.run.id"}) == {
        "gen_ai.conversation"
    }


def test_our_own_names_are_documented(used: set[str]) -> None:
    """The page lists each of our attributes and metrics, and no other."""
    listed = set(re.findall(r"^\| `(perdure\.[a-z_.]+)` \|", PAGE.read_text(), re.MULTILINE))

    ours = {name for name in used if name.startswith("perdure.")}
    measured = {metric.name for metric in METRICS}
    other_scenes = {"perdure.link", "perdure.switch.from", "perdure.switch.to", "perdure.timer.decision"}
    assert listed == ours | measured | other_scenes | {"perdure.cost.usd"}


def test_attributes_are_of_the_types_that_a_span_takes(store: Store) -> None:
    """Text, numbers and lists of text: nothing else is in a span."""
    spans = thread_spans(scenes.with_tool(store), content="text")

    decoded = msgspec.json.decode(msgspec.json.encode(spans))

    kinds = {type(value) for span in decoded for value in span["attributes"].values()}
    assert kinds <= {str, int, float, bool, list}
