"""Acts of `private_lives` for processes that are forked for one act: they have the SDKs already, which takes seconds."""

from __future__ import annotations

from importlib import import_module

from tests.providers import private_lives

__all__ = ["live"]

for _name in ("anthropic", "boto3", "google.genai", "mistralai", "openai"):
    import_module(_name)


def live(environment: dict[str, str], act: str, path: str, log: str, *urls: str) -> dict[str, str]:
    """Do an act in this process; return its outcome."""
    return private_lives.live(environment, act, path, log, *urls)
