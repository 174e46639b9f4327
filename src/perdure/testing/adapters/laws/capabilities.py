"""The laws of `supports`: an answer for every capability, and a true one where a render can tell."""

from __future__ import annotations

from perdure.providers.capabilities import Capability
from perdure.testing.adapters.ground import Ground
from perdure.testing.adapters.histories import SHOWN
from perdure.testing.adapters.laws.cases import for_each
from perdure.testing.adapters.looking import covers

__all__ = ["CapabilityLaws"]


class CapabilityLaws(Ground):
    """What `supports` promises."""

    @for_each([*Capability, "a capability of nobody", ""])
    def test_every_capability_has_an_answer(self, capability: str) -> None:
        """It is `full`, `lossy` or `none`, for the format and for a model of it."""
        adapter = self.adapter()

        assert adapter.supports(capability) in ("full", "lossy", "none")
        assert adapter.supports(capability, model=self.model) in ("full", "lossy", "none")
        assert adapter.supports(capability, model="a model of nobody") in ("full", "lossy", "none")

    def test_what_is_not_known_is_not_done(self) -> None:
        """A capability that nobody has heard of is `none`, and words are never that."""
        assert self.adapter().supports("a capability of nobody") == "none"
        assert self.adapter().supports("text") != "none"

    @for_each(SHOWN)
    def test_what_is_done_fully_loses_nothing(self, capability: str) -> None:
        """Where the answer is `full` for a model, a request to it carries the thing over unchanged."""
        context, where = SHOWN[capability]
        if self.adapter().supports(capability, model=self.model) != "full":
            return

        losses = self.rendered(context).losses

        assert [loss for loss in losses if covers(loss, where) and loss.kind != "repaired"] == []

    @for_each(SHOWN)
    def test_what_is_not_done_is_reported(self, capability: str) -> None:
        """Where the answer is `none` for a model, a request to it says what became of the thing."""
        context, where = SHOWN[capability]
        if self.adapter().supports(capability, model=self.model) != "none":
            return

        losses = self.rendered(context).losses

        assert [loss for loss in losses if covers(loss, where)] != []
