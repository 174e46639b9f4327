"""The laws of the engine contract, by idea; pytest rewrites the asserts of these modules to explain themselves."""

from __future__ import annotations
