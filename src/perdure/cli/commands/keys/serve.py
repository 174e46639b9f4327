"""`perdure serve`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from perdure.cli.input.stores import server_installed, telemetry, writing
from perdure.cli.input.user_code import found_in, what_to_type
from perdure.cli.options import EVERYWHERE, Everywhere, SearchedBy
from perdure.cli.output.answer import Answer
from perdure.cli.output.screen import Screen, console
from perdure.cli.usage import to_be_named
from perdure.engines.registry import file_of
from perdure.errors import Invalid
from perdure.runtime.agent.agent import Agent
from perdure.shapes.text import safe_json

if TYPE_CHECKING:
    from perdure.server.serve import Serving

__all__ = ["ServeEnded", "serve"]


class ServeEnded(Answer, frozen=True, kw_only=True):
    """A server that was stopped."""

    url: str

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        screen.say(f"Stopped serving {self.url}; nothing is under way here any more.")


_Names = Annotated[
    list[str] | None,
    Parameter(
        metavar="HOST",
        negative=(),
        help="A further host name that requests may address, such as a proxy's; may be repeated",
    ),
]
_RootPath = Annotated[
    str,
    Parameter(
        metavar="PATH",
        show_default=False,
        help="The path under which a proxy shows the server; the proxy removes it from requests",
    ),
]


def serve(
    *,
    host: Annotated[str, Parameter(metavar="ADDRESS", help="The address to listen on")] = "127.0.0.1",
    port: Annotated[int, Parameter(metavar="N", help="The port; 0: any that is free")] = 7333,
    name: _Names = None,
    root_path: _RootPath = "",
    work: Annotated[
        bool,
        Parameter(negative=(), show_default=False, help="Run queued and interrupted runs, too, as work does"),
    ] = False,
    code: Annotated[
        str | None,
        Parameter(name="--code", metavar="MODULE:NAME", help="Where the agents are declared that it can run"),
    ] = None,
    at_once: Annotated[int, Parameter(metavar="N", help="With --work: how many runs side by side")] = 8,
    embed: SearchedBy = "none",
    everywhere: Everywhere = EVERYWHERE,
) -> Iterator[ServeEnded]:
    """Serve the store over HTTP, with a page for the browser, until stopped

    On this machine it needs no key: the link that it prints has a token. On any other address it starts only if the
    store has a key (`perdure keys add`). On SIGTERM or Ctrl-C it ends streams, lets runs end, and stops; a second
    signal ends it at once. With perdure[otel] installed it sends telemetry where the OTEL_* environment says.
    --embed is for memories: what clients find, and what is shown to the models of the runs here.
    """
    with server_installed():
        from perdure.server.serve import serve as serve_store
    agents = _agents(code)
    if work and not agents:
        raise Invalid(
            "--work needs --code: what the tools of an agent do is known only to the program that declares it; "
            "nothing is served.",
            code="code_missing",
            advice=what_to_type(),
        )
    screen, output = Screen(console(), store=to_be_named(everywhere.store)), sys.stdout
    listening: list[str] = []

    def started(place: Serving) -> None:
        listening.append(place.url)
        if everywhere.json:
            print(safe_json(msgspec.to_builtins(place), indent=None), file=output, flush=True)
        else:
            _announce(screen, everywhere.store, place)
            output.flush()

    with (
        writing(everywhere, create=file_of(everywhere.store) is None, embed=embed) as store,
        telemetry(store) as metrics,
        redirect_stdout(sys.stderr),
        _warnings_printed(is_wanted=not everywhere.verbose),
    ):  # what the code prints goes elsewhere
        serving = partial(serve_store, store, agents, host=host, port=port, names=name or ())
        serving(root_path=root_path, work=work, at_once=at_once, metrics=metrics, started=started)
    yield ServeEnded(url=listening[0])


@contextmanager
def _warnings_printed(*, is_wanted: bool) -> Generator[None]:
    """Print warnings of the log to the error stream, if no other handler does: answers refer to them for the cause."""
    logger, handler = logging.getLogger("perdure"), logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    if is_wanted:
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _announce(screen: Screen, store: str, place: Serving) -> None:
    """Print where the store is served, and with which credential."""
    screen.say(("Serving", "good"), f" {store} at {place.link}")
    credential = "Clients present a key" if place.has_keys else "The link has the only credential"
    screen.say((f"{credential}; Ctrl-C stops it.", "quiet"))


def _agents(code: str | None) -> list[Agent]:
    if code is None:
        return []
    agents = list(found_in(code).agents.values())
    if not agents:
        raise Invalid(
            f"--code {code} holds no Agent; nothing is served.",
            code="agent_not_in_code",
            advice=what_to_type(),
            code_name=code,
        )
    return agents
