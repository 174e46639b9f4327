"""The HTTP server of a store, and what one's own ASGI application takes from it.

    app = perdure.server.app(store, agents=[planner])         # the whole server, to be mounted
    return perdure.server.events(thread.stream(text))         # any stream as server-sent events
    return perdure.server.problem(error)                      # any error as a problem document

It needs `perdure[server]`.
"""

from __future__ import annotations

try:
    from perdure.server.access import Access
    from perdure.server.app import app
    from perdure.server.problems import problem, problem_handler
    from perdure.server.serve import serve
    from perdure.server.streams import events
except ModuleNotFoundError as error:
    if error.name not in ("starlette", "uvicorn", "httptools"):
        raise
    raise ModuleNotFoundError(
        f"the server needs {error.name}, which is not installed: pip install 'perdure[server]'",
        name=error.name,
    ) from error

__all__ = ["Access", "app", "events", "problem", "problem_handler", "serve"]
