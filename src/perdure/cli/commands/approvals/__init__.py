"""Commands about approvals: calls that wait for a person's decision."""

from __future__ import annotations
