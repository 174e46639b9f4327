"""A process of a program whose threads are on private servers, with every connection to a public host on record.

    python -m tests.providers.private_lives ACT STORE LOG URL…

The interpreter tells an audit hook of each name that is looked up and each connection that is opened, below
every HTTP library.  A public host is written to LOG and refused.  URLs are those of the private servers, one
for each of `VENDORS`.  What the act came to is printed as JSON: by thread, "ok" or the kind of the error.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import perdure
from perdure import Agent, Backend, Plugin, Route, Store
from perdure.errors import PerdureError, RunFailed
from perdure.testing import Script, say
from tests.providers.playing import Place
from tests.providers.vendors import KEY, VENDORS, Vendor

__all__ = ["ACTS", "live", "watch"]

DEAD = "http://127.0.0.1:9"

planner = Agent("planner", backend=VENDORS[0].backend)


def watch(log: Path) -> None:
    """Write each public host that this process turns to into `log`, and let no connection there be made."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        host = None
        if event == "socket.getaddrinfo":
            host = arguments[0]
        elif event == "socket.connect" and isinstance(arguments[1], tuple):
            host = arguments[1][0]
        name = host.decode() if isinstance(host, bytes) else str(host or "localhost")
        if not _is_here(name):
            with log.open("a") as file:
                file.write(f"{name}\n")
            raise ConnectionRefusedError(f"{name} is public")

    sys.addaudithook(hook)


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host in ("localhost", "")


def begin(store: Store, places: list[Place]) -> dict[str, str]:
    """Threads begin on private servers; some go on to the private server of another vendor."""
    told: dict[str, str] = {}
    for at, (vendor, place) in enumerate(zip(VENDORS, places, strict=True)):
        follower, next_place = VENDORS[at - 1], places[at - 1]
        plain = store.thread(f"plain {vendor.api}", agent=_agent(vendor.at(place)))
        told[plain.id] = outcome(partial(plain.run, "My secret"))
        moved = store.thread(f"switched {vendor.api}", agent=_agent(vendor.at(place)))
        moved.run("My secret")
        told[moved.id] = outcome(partial(moved.switch, follower.at(next_place)))
        route = Route([follower.at(next_place)])
        failing = store.thread(f"failed over {vendor.api}", agent=_agent(_dead(vendor), route=route))
        told[failing.id] = outcome(partial(failing.run, "My secret"))
    return told


def cut(store: Store, places: list[Place]) -> dict[str, str]:
    """A run ends with its process, before its first step."""
    gone = Plugin("gone", before_inference=lambda _: os._exit(0))
    store.thread("cut off", agent=_agent(VENDORS[0].at(places[0]), plugins=[gone])).run("My secret")
    raise AssertionError("the process has ended")


def bare(store: Store, places: list[Place]) -> dict[str, str]:
    """Another program knows the backends by name only, with keys in the environment."""
    told: dict[str, str] = {}
    names = [vendor.backend for vendor in VENDORS]
    for at, vendor in enumerate(VENDORS):
        others = Route([name for name in names if name != vendor.backend])
        for kind in ("plain", "switched", "failed over"):
            thread = store.thread(f"{kind} {vendor.api}", agent=_agent(vendor.backend, route=others))
            told[thread.id] = outcome(partial(thread.run, "Go on"))
        plain = store.thread(f"plain {vendor.api}", agent=Agent("planner"))
        told[f"summary {vendor.api}"] = outcome(partial(plain.switch, Script(say("B")), summariser=names[at]))
        plain.check_switch(Backend(vendor.backend))
        plain.render(vendor.backend)
    thread = store.thread("cut off", agent=_agent(VENDORS[0].backend))
    told["resumed"] = outcome(thread.resume)
    told["run after the cut"] = outcome(partial(thread.run, "Go on"))
    return told


def again(store: Store, places: list[Place]) -> dict[str, str]:
    """Another program has the same backends, and goes on."""
    told: dict[str, str] = {}
    for vendor, place in zip(VENDORS, places, strict=True):
        thread = store.thread(f"plain {vendor.api}", agent=_agent(vendor.at(place)))
        told[thread.id] = outcome(partial(thread.run, "Go on"))
    cut_off = store.thread("cut off", agent=_agent(VENDORS[0].at(places[0])))
    told["resumed"] = outcome(cut_off.resume)
    return told


def public(store: Store, places: list[Place]) -> dict[str, str]:
    """The control: threads that are on the vendors' own addresses from the beginning."""
    threads = [store.thread(f"public {each.api}", agent=_agent(_quick(each))) for each in VENDORS]
    return {thread.id: outcome(partial(thread.run, "Hello")) for thread in threads}


ACTS: dict[str, Callable[[Store, list[Place]], dict[str, str]]] = {
    "begin": begin,
    "cut": cut,
    "bare": bare,
    "again": again,
    "public": public,
}


def outcome(act: Callable[[], object]) -> str:
    """What came of an act."""
    try:
        act()
    except RunFailed as failed:
        return f"run failed: {failed.run.kind}"  # pyright: ignore[reportAttributeAccessIssue]
    except PerdureError as error:
        return type(error).__name__
    return "ok"


def _agent(backend: Any, **more: Any) -> Agent:
    return Agent("planner", backend=backend, **more)


def _dead(vendor: Vendor) -> Backend:
    return vendor.at(Place(DEAD, []), retries=0)


def _quick(vendor: Vendor) -> Backend:
    key = None if vendor.api == "bedrock-converse" else KEY
    return Backend(vendor.backend, api_key=key, retries=0)


def live(environment: dict[str, str], act: str, path: str, log: str, *urls: str) -> dict[str, str]:
    """Do an act in this process, which has nothing of Perdure's open yet; return its outcome."""
    os.environ.clear()
    os.environ.update(environment)
    watch(Path(log))
    warnings.simplefilter("ignore", UserWarning)
    with perdure.open(Path(path)) as opened:
        return ACTS[act](opened, [Place(url, []) for url in urls])


if __name__ == "__main__":
    print(json.dumps(live(dict(os.environ), *sys.argv[1:])))
