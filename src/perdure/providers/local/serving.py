"""Serving: one llama.cpp server inside the process for each file, started when it is first asked.

It speaks OpenAI's Chat and Responses and Anthropic's Messages on a port of 127.0.0.1, and is stopped
when the process ends.  Half of the processors are used: where others compute as well, threads that
wait for each other make a model many times slower.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from perdure.errors import Unavailable
from perdure.model.forks import ThreadLock, keep_forever
from perdure.providers.local.weights import template_of, weights
from perdure.providers.transport.contract import Request
from perdure.providers.transport.finding import missing

__all__ = ["CONTEXT_TOKENS", "addressed", "running", "serve"]

CONTEXT_TOKENS = 8_192

_guard = ThreadLock()
_servers: dict[tuple[int, Path], Any] = {}  # by process and file: threads do not live on in a fork


async def addressed(request: Request) -> Request:
    """The request, addressed to the server of its model, which is started if need be."""
    if request.base_url is not None or request.client is not None:
        return request
    url = await asyncio.to_thread(serve, request.model)
    return replace(request, base_url=f"{url}/v1", address=f"{url}/v1", api_key="local")


def serve(model: str, *, context_tokens: int = CONTEXT_TOKENS, threads: int | None = None) -> str:
    """The address of the server for a file or a packaged model, started if it does not run yet.

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
    """The address of the server for a file or a packaged model; None if none runs in this process."""
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
        raise Unavailable(f"'{path.name}' cannot be loaded: {error}; nothing was started.") from error


def _stop() -> None:
    with _guard:
        for (pid, _), server in _servers.items():
            if pid != os.getpid():
                # Its threads are the parent's: a child that stopped it would wait for them for ever.
                keep_forever(server)
        _servers.clear()
