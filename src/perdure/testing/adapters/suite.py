"""The adapter conformance suite: every law of the adapter contract, as a test.

A new adapter joins by saying how it is got:

    class TestYourAdapter(AdapterSuite):
        def adapter(self) -> Adapter:
            return YOUR_ADAPTER

With examples of its format, a request, an answer and the same answer as a stream, more laws apply
(see `perdure.testing.adapters.ground`).  The class stands in a module, not in a function: one law
looks for it in another process.
"""

from __future__ import annotations

from perdure.testing.adapters.laws.answers import AnswerLaws
from perdure.testing.adapters.laws.capabilities import CapabilityLaws
from perdure.testing.adapters.laws.renders import RenderLaws
from perdure.testing.adapters.laws.requests import RequestLaws
from perdure.testing.adapters.laws.streams import StreamLaws

__all__ = ["AdapterSuite"]


class AdapterSuite(RenderLaws, RequestLaws, AnswerLaws, StreamLaws, CapabilityLaws):
    """All laws.  Subclass it, name the subclass `Test…` and write `adapter`."""
