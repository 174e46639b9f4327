"""The engine conformance suite.  `suite` puts it together from `laws`; `builders` makes their writes."""

from __future__ import annotations

import pytest

# Before any law is imported, or its failing asserts would say nothing but "assert".
pytest.register_assert_rewrite("perdure.testing.engines.laws")
