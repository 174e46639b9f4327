"""`perdure mcp`."""

from __future__ import annotations

import asyncio
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.input.stores import reading, server_installed, writing
from perdure.cli.input.users import os_user
from perdure.cli.options import EVERYWHERE, Everywhere, SearchedBy

__all__ = ["mcp"]


def mcp(
    *,
    operator: Annotated[
        bool,
        Parameter(negative=(), show_default=False, help="Offer fork, decide and changes of memories, too"),
    ] = False,
    embed: SearchedBy = "none",
    everywhere: Everywhere = EVERYWHERE,
) -> None:
    """Offer the store to a client of the Model Context Protocol, over standard input and output

    The client reads threads, messages, states at any moment, logs, differences and memories. With --operator it may also
    change memories, fork threads and decide about calls that wait; that is recorded under the name of the system's user.
    The same tools are at /mcp of `perdure serve`, for the keys of the store.
    """
    with server_installed("mcp"):
        from perdure.server.access import Access
        from perdure.server.app import HttpServer
        from perdure.server.mcp import serve_stdio
    access = Access(name=os_user(), roles=("operator", "approver") if operator else ("viewer",))
    with (writing if operator else reading)(everywhere, embed=embed) as store:
        application = HttpServer(store)
        try:
            asyncio.run(serve_stdio(application, access))
        finally:
            application.store.tool_threads.shutdown(wait=False)
