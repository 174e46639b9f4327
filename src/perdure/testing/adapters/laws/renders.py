"""The laws of `render`: pure, the same every time, whatever the history, and nothing dropped in silence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, cast, get_args

import msgspec

from perdure.model.context import Context
from perdure.model.message import Message
from perdure.providers.contract import Loss, LossKind, Rendered
from perdure.testing.adapters.child import digests, digests_elsewhere
from perdure.testing.adapters.ground import Ground
from perdure.testing.adapters.histories import BROKEN, HISTORIES, SECRET, TOLD_BY_OTHERS, places
from perdure.testing.adapters.laws.cases import for_each
from perdure.testing.adapters.looking import covers, is_told, leaves, mended

__all__ = ["RenderLaws"]

every_history = for_each(HISTORIES)


def text_of(rendered: Rendered) -> str:
    """The request and the report, in the order in which they were made."""
    return json.dumps([rendered.body, [repr(loss) for loss in rendered.losses]])


def turned(value: object) -> Any:
    """The same with every dictionary the other way round."""
    match value:
        case Mapping():
            held = cast("Mapping[str, Any]", value)
            return {name: turned(held[name]) for name in reversed(list(held))}
        case list() | tuple():
            return [turned(each) for each in cast("list[Any]", value)]
        case _:
            return value


def with_metadata(context: Context, metadata: str | None) -> Context:
    """The same conversation, each of its answers with that vendorMetadata."""
    told: list[Message] = [
        msgspec.structs.replace(message, vendor_metadata=metadata) if message.role == "assistant" else message
        for message in context.messages
    ]
    return msgspec.structs.replace(context, messages=tuple(told))


class RenderLaws(Ground):
    """What a rendered request promises."""

    @every_history
    def test_every_history_is_rendered_as_plain_json(self, history: str) -> None:
        """Whatever the history looks like, a request of plain JSON and a report come out."""
        rendered = self.rendered(deepcopy(HISTORIES[history]))

        assert isinstance(rendered.body, dict)
        assert json.loads(json.dumps(rendered.body, allow_nan=False)) == rendered.body

    @every_history
    def test_render_is_the_same_every_time(self, history: str) -> None:
        """The same context gives the same bytes, also where it is another object that says the same."""
        first = text_of(self.rendered(HISTORIES[history]))

        assert text_of(self.rendered(HISTORIES[history])) == first
        assert text_of(self.rendered(deepcopy(HISTORIES[history]))) == first

    @every_history
    def test_the_order_of_dictionaries_changes_nothing(self, history: str) -> None:
        """A dictionary that was filled in another order says the same."""
        context = HISTORIES[history]
        tools = [msgspec.structs.replace(tool, parameters=turned(tool.parameters)) for tool in context.tools]
        other = msgspec.structs.replace(context, tools=tools, options=turned(context.options))

        one, two = self.rendered(context), self.rendered(other)

        assert json.dumps(two.body, sort_keys=True) == json.dumps(one.body, sort_keys=True)
        assert set(two.losses) == set(one.losses)

    def test_another_process_renders_the_same(self) -> None:
        """Neither the process nor its hash seed is in a request."""
        here = digests(self)

        assert digests_elsewhere(type(self), 1) == here
        assert digests_elsewhere(type(self), 4_242) == here

    @every_history
    def test_render_leaves_the_context_as_it_is(self, history: str) -> None:
        """What is shown is not touched."""
        context, before = deepcopy(HISTORIES[history]), deepcopy(HISTORIES[history])

        self.rendered(context)

        assert context == before

    @every_history
    def test_every_loss_says_what_where_and_why(self, history: str) -> None:
        """An entry of the report has a kind, a place in the context and words."""
        losses = self.rendered(HISTORIES[history]).losses

        assert all(isinstance(loss, Loss) for loss in losses)
        assert {loss.kind for loss in losses} <= set(get_args(LossKind))
        assert [
            loss
            for loss in losses
            if not (loss.what and loss.why) or not loss.where.startswith(Context.__struct_fields__)
        ] == []

    @for_each(BROKEN)
    def test_every_repair_is_reported(self, history: str) -> None:
        """A history that no vendor takes as it is comes out repaired, and the report says so."""
        losses = self.rendered(HISTORIES[history]).losses

        assert [loss for loss in losses if loss.kind in ("repaired", "dropped")] != []

    @every_history
    def test_nothing_said_is_lost_in_silence(self, history: str) -> None:
        """All that the history says is in the request or in the report."""
        context = HISTORIES[history]
        rendered = self.rendered(context)
        told = mended("\n".join(leaves(rendered.body)))

        silent = [
            (where, words)
            for where, words in places(context)
            if not is_told(words, told) and not any(covers(loss, where) for loss in rendered.losses)
        ]

        assert silent == []

    @for_each(["an-option-of-nobody", "vendor"])
    def test_an_option_that_is_left_out_is_reported(self, option: str) -> None:
        """What no vendor knows is not sent on in silence nor dropped in silence."""
        rendered = self.rendered(HISTORIES["options of all kinds"])

        assert option in rendered.body or any(
            loss.where.startswith(f"options.{option}") for loss in rendered.losses
        )

    @every_history
    def test_what_others_keep_changes_nothing(self, history: str) -> None:
        """Without the vendorMetadata of others the request is the same."""
        context = HISTORIES[history]

        told = self.rendered(with_metadata(context, TOLD_BY_OTHERS))
        bare = self.rendered(with_metadata(context, None))

        assert json.dumps(told.body) == json.dumps(bare.body)

    @every_history
    def test_what_others_keep_is_shown_to_nobody(self, history: str) -> None:
        """Signatures and ids of another issuer are in no request."""
        body = self.rendered(with_metadata(HISTORIES[history], TOLD_BY_OTHERS)).body

        assert SECRET not in json.dumps(body)
