"""What the conformance suite knows about the adapter under test, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from perdure.model.context import Context
from perdure.providers.contract import Adapter, Rendered

__all__ = ["AdapterSubject"]


class AdapterSubject:
    """How to get the adapter under test, and examples of its format.

    Without an example the laws that need one are skipped, and say so.
    """

    model: ClassVar[str] = "model-1"  # what requests are rendered for
    request: ClassVar[Mapping[str, Any] | None] = None  # a request in its format
    reply: ClassVar[Mapping[str, Any] | None] = None  # an answer in its format
    streamed: ClassVar[bytes | None] = None  # the same answer, streamed

    def adapter(self) -> Adapter:
        """The adapter under test."""
        raise NotImplementedError

    def rendered(self, context: Context) -> Rendered:
        """The request that shows `context` to the model under test."""
        return self.adapter().render(context, model=self.model)
