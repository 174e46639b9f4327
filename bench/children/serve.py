"""A process that serves a store with a scripted agent, and prints its port and token; it ends on SIGTERM."""

from __future__ import annotations

import sys
from pathlib import Path

import perdure
from bench.measures.http import agent
from bench.sync import slow_syncs_as_told
from perdure.server.serve import Serving, serve


def main(directory: str) -> None:
    slow_syncs_as_told()

    def started(place: Serving) -> None:
        print(place.url.rstrip("/").rpartition(":")[2], place.link.partition("token=")[2], flush=True)

    with perdure.open(Path(directory) / "store.db") as store:
        serve(store, [agent()], port=0, started=started)


if __name__ == "__main__":
    main(*sys.argv[1:])
