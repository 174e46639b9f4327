"""The engine conformance suite.  `suite` puts it together from `laws`; `hand` makes the writes they speak of."""

from __future__ import annotations

import pytest

# Before any law is imported, or its failing asserts would say nothing but "assert".
pytest.register_assert_rewrite("perdure.testing.engines.laws")
