"""Exports that companies make of a person's data: conversations, and files beside them, in a directory or an archive."""

from __future__ import annotations
