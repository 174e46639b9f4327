"""Controls: adapters that break one law each, which the conformance suite must catch at the right test.

Each control breaks one rule of a shipped adapter; the law that guards the rule must then fail, and
it must hold for the adapter as it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec
import pytest

from perdure.errors import PerdureError
from perdure.model.context import Context
from perdure.providers import adapter
from perdure.providers.capabilities import Level
from perdure.providers.contract import Adapter, Rendered, Reply, StreamParser
from perdure.testing import AdapterSuite
from tests.conformance.test_adapters import ChatExamples

CHAT = adapter("openai-chat")


class Sound:
    """The adapter as it is; each control replaces one of its parts."""

    api = CHAT.api

    def render(self, context: Context, *, model: str, provider: str | None = None) -> Rendered:
        return CHAT.render(context, model=model, provider=provider)

    def read_request(
        self, body: Mapping[str, Any], *, model: str | None = None, provider: str | None = None
    ) -> Context:
        return CHAT.read_request(body, model=model, provider=provider)

    def parse(self, body: Mapping[str, Any], *, provider: str | None = None) -> Reply:
        return CHAT.parse(body, provider=provider)

    def stream(self, *, provider: str | None = None) -> StreamParser:
        return CHAT.stream(provider=provider)

    def parse_stream(self, chunks: Iterable[bytes], *, provider: str | None = None) -> Reply:
        return CHAT.parse_stream(chunks, provider=provider)

    def supports(self, capability: str, *, model: str | None = None, provider: str | None = None) -> Level:
        return CHAT.supports(capability, model=model, provider=provider)


class Counting(Sound):
    """Says how often it was asked."""

    times = 0

    def render(self, context: Context, *, model: str, provider: str | None = None) -> Rendered:
        Counting.times += 1
        made = super().render(context, model=model, provider=provider)
        return msgspec.structs.replace(made, body=made.body | {"seed": Counting.times})


class OfItsProcess(Sound):
    """Says in which process it runs."""

    def render(self, context: Context, *, model: str, provider: str | None = None) -> Rendered:
        made = super().render(context, model=model, provider=provider)
        return msgspec.structs.replace(made, body=made.body | {"seed": os.getpid()})


class Ordering(Sound):
    """Puts the options in words, in the order in which they were given."""

    def render(self, context: Context, *, model: str, provider: str | None = None) -> Rendered:
        made = super().render(context, model=model, provider=provider)
        return msgspec.structs.replace(made, body=made.body | {"user": json.dumps(context.options)})


class Touching(Sound):
    """Takes options out of the context."""

    def render(self, context: Context, *, model: str, provider: str | None = None) -> Rendered:
        made = super().render(context, model=model, provider=provider)
        cast("dict[str, Any]", context.options).pop("seed", None)
        return made


class Fragile(Sound):
    """Cannot show an empty conversation."""

    def render(self, context: Context, *, model: str, provider: str | None = None) -> Rendered:
        assert context.messages
        return super().render(context, model=model, provider=provider)


class Silent(Sound):
    """Reports nothing."""

    def render(self, context: Context, *, model: str, provider: str | None = None) -> Rendered:
        return Rendered(body=super().render(context, model=model, provider=provider).body)


class Forgetful(Sound):
    """Leaves the last message out, without a word."""

    def render(self, context: Context, *, model: str, provider: str | None = None) -> Rendered:
        made = super().render(context, model=model, provider=provider)
        return msgspec.structs.replace(made, body=made.body | {"messages": made.body["messages"][:-1]})


class Indiscreet(Sound):
    """Sends on what others keep."""

    def render(self, context: Context, *, model: str, provider: str | None = None) -> Rendered:
        made = super().render(context, model=model, provider=provider)
        kept = [each.vendor_metadata for each in context.messages if each.vendor_metadata]
        return msgspec.structs.replace(made, body=made.body | {"metadata": {"kept": kept}})


class Unpaired(Sound):
    """Gives results ids of their own."""

    def render(self, context: Context, *, model: str, provider: str | None = None) -> Rendered:
        made = super().render(context, model=model, provider=provider)
        messages = [
            each | {"tool_call_id": "other"} if each["role"] == "tool" else each
            for each in made.body["messages"]
        ]
        return msgspec.structs.replace(made, body=made.body | {"messages": messages})


class Piecewise(Sound):
    """Takes every piece for a stream of its own, and keeps the last that was one."""

    def parse_stream(self, chunks: Iterable[bytes], *, provider: str | None = None) -> Reply:
        pieces = list(chunks)
        return super().parse_stream(pieces if len(pieces) < 3 else pieces[:-30], provider=provider)


class Confident(Sound):
    """Takes every stream for a whole one."""

    def parse_stream(self, chunks: Iterable[bytes], *, provider: str | None = None) -> Reply:
        return msgspec.structs.replace(super().parse_stream(chunks, provider=provider), stop="stop")


class Trusting(Sound):
    """Takes every answer for one of its format."""

    def parse(self, body: Mapping[str, Any], *, provider: str | None = None) -> Reply:
        body["choices"][0]["message"]["role"]
        return super().parse(body, provider=provider)


class Boastful(Sound):
    """Does everything fully."""

    def supports(self, capability: str, *, model: str | None = None, provider: str | None = None) -> Level:
        return "full"


class Vague(Sound):
    """Has a word of its own."""

    def supports(self, capability: str, *, model: str | None = None, provider: str | None = None) -> Level:
        return cast("Any", "perhaps")


class SoundSuite(ChatExamples):
    """The suite on the adapter as it is, for laws that are called by hand."""

    def adapter(self) -> Adapter:
        return Sound()


class ProcessSuite(ChatExamples):
    """The suite on an adapter whose requests depend on the process."""

    def adapter(self) -> Adapter:
        return OfItsProcess()


CONTROLS: list[tuple[type[Sound], str, tuple[Any, ...]]] = [
    (Counting, "test_render_is_the_same_every_time", ("words",)),
    (Ordering, "test_the_order_of_dictionaries_changes_nothing", ("options of all kinds",)),
    (Touching, "test_render_leaves_the_context_as_it_is", ("options of all kinds",)),
    (Fragile, "test_every_history_is_rendered_as_plain_json", ("nothing",)),
    (Silent, "test_every_repair_is_reported", ("a dangling call",)),
    (Silent, "test_nothing_said_is_lost_in_silence", ("a lone result",)),
    (Silent, "test_an_option_that_is_left_out_is_reported", ("vendor",)),
    (Forgetful, "test_nothing_said_is_lost_in_silence", ("words",)),
    (Forgetful, "test_what_was_said_is_read_again", ("words",)),
    (Forgetful, "test_results_are_read_again", ("a failed tool",)),
    (Indiscreet, "test_what_others_keep_changes_nothing", ("words",)),
    (Indiscreet, "test_what_others_keep_is_shown_to_no_model", ("told by others",)),
    (Unpaired, "test_calls_and_results_pair_up", ("one call",)),
    (Piecewise, "test_a_stream_in_pieces_of_any_size_says_the_same", ()),
    (Confident, "test_a_stream_that_is_cut_off_says_no_more_than_was_whole", ()),
    (Confident, "test_a_stream_says_what_the_whole_answer_says", ()),
    (Trusting, "test_what_is_no_answer_is_refused", ({},)),
    (Trusting, "test_an_answer_of_a_wrong_shape_is_refused_or_read", ()),
    (Boastful, "test_what_is_not_known_is_not_done", ()),
    (Boastful, "test_what_is_done_fully_loses_nothing", ("video",)),
    (Vague, "test_every_capability_has_an_answer", ("text",)),
]


@pytest.mark.parametrize(
    ("broken", "law", "given"), CONTROLS, ids=[f"{each[0].__name__}-{each[1]}" for each in CONTROLS]
)
def test_the_suite_catches_an_adapter_that_is(broken: type[Sound], law: str, given: tuple[Any, ...]) -> None:
    """The law holds for the adapter as it is and fails once its rule is broken."""

    class Suite(ChatExamples):
        def adapter(self) -> Adapter:
            return broken()

    getattr(SoundSuite(), law)(*given)
    with pytest.raises((AssertionError, PerdureError, KeyError, TypeError, IndexError, ExceptionGroup)):
        getattr(Suite(), law)(*given)


def test_the_suite_catches_an_adapter_that_depends_on_its_process() -> None:
    """The law holds for the adapter as it is and fails where the process is in the request."""
    SoundSuite().test_another_process_renders_the_same()
    with pytest.raises(AssertionError):
        ProcessSuite().test_another_process_renders_the_same()


def test_a_law_names_every_case_for_which_it_does_not_hold() -> None:
    """One test is about all histories, and its failure says which of them."""

    class Suite(ChatExamples):
        def adapter(self) -> Adapter:
            return Unpaired()

    with pytest.raises(ExceptionGroup) as failed:
        Suite().test_calls_and_results_pair_up()

    notes = [note for error in failed.value.exceptions for note in error.__notes__]
    assert "case: 'one call'" in notes
    assert "case: 'words'" not in notes


def test_an_adapter_joins_without_examples() -> None:
    """Laws that need an example are skipped, and say which."""

    class Suite(AdapterSuite):
        def adapter(self) -> Adapter:
            return Sound()

    with pytest.raises(pytest.skip.Exception, match="`streamed`"):
        Suite().test_two_streams_do_not_mix()
