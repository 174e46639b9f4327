"""A store with a story and a server on it, in a process of its own: what the browser tests look at.

`python -m tests.page.story STORE DIRECTORY [TURNS THREADS]` makes the story in the store if it is empty, serves the store
and prints the start link.  With `--below PATH` the server is mounted there in an application of its own, with
`--root-path PATH` a proxy shows it there.  With `--copied` the story was told in another store.  With numbers it makes one thread of that many turns and that many threads instead.  The model of the story follows what people
write.  It holds an answer back in the middle until a file named `go` is in DIRECTORY, so that a test can look at a run
that is under way.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from argparse import ArgumentParser
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

import perdure
from perdure import Agent, Call, Outcome, RetentionPolicy, Stop, Store, server
from perdure.model.context import Context
from perdure.model.message import Message, ReasoningSummary, Text, ToolCall
from perdure.model.run import Usage
from perdure.providers.contract import Finished, ModelEvent, ReasoningChunk, TextChunk
from perdure.testing import Script, say, use
from tests.memory.remembering import remembering

__all__ = ["HOSTILE"]

_SLOW_WORDS = "Lisbon is lovely in spring. The tram climbs slowly. Take the early boat."
HOSTILE = (
    '<img src=x onerror="window.ran=1">',
    "<script>window.ran=1</script>",
    'javascript:window.ran=1//"><svg onload=window.ran=1>',
    "</textarea></pre></code><iframe srcdoc='<script>parent.ran=1</script>'>",
    "{{constructor.constructor('window.ran=1')()}} ${window.ran=1}",
    "\x1b]0;title\x07 \u202e gnp.exe \u2066",
)

_DIRECTORY = Path(sys.argv[2]) if __name__ == "__main__" else Path()


@perdure.tool(effect="local_write")
def plan(destination: str, budget: int, call: Call) -> str:
    """Write the plan of the trip."""
    call.put("/trip.json", {"destination": destination, "budget": budget, "currency": "EUR"})
    return f"planned {destination}"


@perdure.tool(effect="financial", ask=lambda call: call.arguments["price"] > 200)
def book(flight: str, price: int, call: Call) -> str:
    """Book a flight; dear ones need a person."""
    bookings = call.get("/bookings.json", default=[])
    call.put("/bookings.json", [*bookings, {"flight": flight, "price": price}])
    return f"booked {flight} for {price} EUR"


@perdure.tool(effect="financial")
def pay(to: str, amount: int) -> str:
    """Pay a person; the bank does not answer the first payment of the story."""
    paid = _DIRECTORY / "paid"
    if not paid.exists():
        paid.touch()
        raise TimeoutError("no answer from the bank")
    return f"paid {to} {amount} EUR"


@perdure.tool(effect="financial")
def transfer(to: str, amount: int) -> str:
    """Transfer money; the bank never answers, and cannot be asked either."""
    raise TimeoutError("no answer from the bank")


@transfer.reconcile
def ask_bank(call: Call) -> Outcome:
    """Ask the bank, which is closed."""
    return call.dont_know("the bank is closed")


@perdure.tool(effect="local_write")
def name(thing: str, call: Call) -> str:
    """Name a thing as a person says."""
    if call.decision is None:
        schema = {"type": "string", "minLength": 3}
        call.suspend(f"What shall the {thing} be called?", action="choose-name", response_schema=schema)
    call.put("/name.json", call.decision.value)
    return f"the {thing} is called {call.decision.value}"


@perdure.tool(effect="local_write")
def add(item: str, price: int, call: Call) -> str:
    """Put an item into the cart; a voucher is counted wrongly."""
    cart = call.get("/cart.json", default={"items": {}, "total": 0})
    total = cart["total"] - 100 if item == "voucher" else cart["total"] + price
    call.put("/cart.json", {"items": cart["items"] | {item: price}, "total": total})
    return f"added {item}"


class Traveller:
    """A model that plans trips by simple rules, and answers the rest in words."""

    backend = "script:traveller"

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Take one step: a call if the words ask for one that was not made yet, then an answer."""
        asked = max(at for at, message in enumerate(context.messages) if message.role == "user")
        words = context.messages[asked].text
        results = [message for message in context.messages[asked:] if message.tool_results]
        usage = Usage(input_tokens=40 + 12 * len(context.messages), output_tokens=25)
        call = _call(words) if not results else None
        unwell = _DIRECTORY / "unwell"
        if "unwell" in words and not unwell.exists():
            unwell.touch()
            raise RuntimeError("the model is unwell")
        if call is not None:
            thought = "The traveller wants this done, so the tool is the way."
            yield ReasoningChunk(thought)
            yield Finished(message=Message("assistant", (ReasoningSummary(thought),), (call,)), usage=usage)
            return
        text = _SLOW_WORDS if "slowly" in words else _answer(words, done=bool(results))
        thoughts = ("A slow answer is asked for.",) if "slowly" in words else ()
        for thought in thoughts:
            yield ReasoningChunk(thought)
        for index, piece in enumerate(text.split(" ")):
            yield TextChunk(piece if index == 0 else f" {piece}")
            if "slowly" in words and index == 5:
                await _until_told()
        content = (*map(ReasoningSummary, thoughts), Text(text))
        yield Finished(message=Message("assistant", content), usage=usage)


class LogWriter:
    """A model that notes each line of a log."""

    backend = "script:log"

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Note the line."""
        asked = [message.text for message in context.messages if message.role == "user"]
        text = f"Noted line {asked[-1].split(' ')[1]}."
        yield TextChunk(text)
        yield Finished(
            message=Message("assistant", (Text(text),)), usage=Usage(input_tokens=9, output_tokens=4)
        )


def _call(words: str) -> ToolCall | None:
    place = words.partition(" to ")[2].partition(" ")[0].strip(".,")
    numbers = [int(each.strip(".,")) for each in words.split() if each.strip(".,").isdigit()]
    if words.startswith("Plan") and numbers:
        return ToolCall("plan", "plan", json.dumps({"destination": place, "budget": numbers[0]}))
    if words.startswith("Book") and numbers:
        return ToolCall("book", "book", json.dumps({"flight": f"TP {place}", "price": numbers[0]}))
    if words.startswith("Pay") and numbers:
        return ToolCall("pay", "pay", json.dumps({"to": place, "amount": numbers[0]}))
    if words.startswith("Transfer") and numbers:
        return ToolCall("transfer", "transfer", json.dumps({"to": place, "amount": numbers[0]}))
    if words.startswith("Name"):
        return ToolCall("name", "name", json.dumps({"thing": words.split()[-1].strip(".")}))
    if words.startswith("Add") and numbers:
        return ToolCall("add", "add", json.dumps({"item": words.split()[1], "price": numbers[0]}))
    return None


def _answer(words: str, *, done: bool) -> str:
    return "Done. Anything else?" if done else f"Noted: {words}"


async def _until_told() -> None:
    while not (_DIRECTORY / "go").exists():
        await asyncio.sleep(0.02)


planner = Agent(
    "planner",
    backend=Traveller(),
    tools=[plan, book, pay, transfer, add, name],
    instructions="You plan trips, and book what was agreed.",
    state=[perdure.state("/hotel.json", merge="keys")],
)


def _tell(store: Store) -> None:
    """Make the threads of the story."""
    trip = store.thread("trip-42", agent=planner, owner="ann")
    trip.run("Plan a trip to Lisbon for 1200 euros.", id="m1")
    trip.run("Ann likes trams and small hotels.", id="m2")
    trip.run("Plan a trip to Lisbon for 12000 euros.", id="m3")
    trip.run("Is there a museum for tiles?", id="m4")
    trip.run("Book the flight to Lisbon for 180 euros.", id="m5")
    trip.fork("slower", at="turn:2").run("What if we take the train?", id="m6")
    for name, price in (("trip-43", 640), ("trip-44", 910)):
        waiting = store.thread(name, agent=planner, owner="ben")
        waiting.run("I want to see the sea.", id=f"{name}-1")
        waiting.run(f"Book the flight to Porto for {price} euros.", id=f"{name}-2")
    paying = store.thread("rent", agent=planner, owner="cleo")
    for number in range(2):
        paying.run("Pay the rent to Dora, 900 euros.", id=f"rent-{number}")
    cart = store.thread("cart", agent=planner, owner="cleo")
    for number, item in enumerate(("tea", "rice", "voucher", "milk", "salt"), start=1):
        cart.run(f"Add {item} for {number} euros.", id=f"cart-{number}")
    store.thread("notes", agent="writer").put("/list.json", ["milk"])
    store.thread("notes-live", agent=planner)
    undone = store.thread("undone", agent=planner)
    undone.run("First.", id="u1")
    undone.run("Second.", id="u2")
    for text in ("Dora lives in Porto.", "Dora likes trams."):
        store.memory("dora").add(text)
    remembering(store, "wish", "Dora wants a boat.", name="boat", owner="dora").undo()
    hostile = store.thread('<img src=x onerror="window.ran=1">', agent=planner, owner="<b>eve</b>")
    for number, text in enumerate(HOSTILE):
        hostile.run(
            f"Book {text} to {text} for 900 euros." if number == len(HOSTILE) - 1 else text, id=f"h{number}"
        )
        if number == 0:
            hostile.put("/<img src=x onerror='window.ran=1'>.json", {text: list(HOSTILE)})


def _tell_old(store: Store, age: list[float]) -> None:
    """Make a thread of the last year, of which a retention policy removes old values and a dropped timeline.

    `age` in days sets the clock.
    """
    archive = store.thread("archive", agent="archivist")
    for number in range(4):
        age[0] = 360 - 100 * number
        with archive.change("say") as change:
            change.say("user", f"Entry {number}.")
            change.put("/entry.json", number)
    age[0] = 0
    archive.fork("attempt").put("/entry.json", "tried")
    archive.drop("attempt")
    store.gc(store.gc_plan(RetentionPolicy(superseded_after_days=100, removed_threads=True)))


def _tell_long(store: Store, turns: int, threads: int) -> None:
    """Make one thread of many turns, one in ten of them a run, and many threads."""
    long = store.thread("long", agent=Agent("writer", backend=LogWriter()))
    for number in range(1, turns + 1):
        if number % 10 == 0:
            long.run(f"Line {number} of the log.")
            continue
        with long.change("say") as change:
            change.say("user", f"Line {number} of the log.")
            change.say("assistant", f"Noted line {number}.")
    for number in range(threads):
        store.thread(f"thread-{number:04}", agent="writer", owner="ann").put("/n.json", number)
    _tell_many(store)


def _tell_many(store: Store) -> None:
    """Make more items than a page has: calls, the first of unknown outcome, and memories; a run costs a dollar."""
    step = Usage(input_tokens=1, output_tokens=1)
    answers = [
        answer
        for number in range(61)
        for answer in (use("pay", to="ben", amount=number, usage=step), say("Paid.", usage=step))
    ]
    payer = Agent("payer", backend=Script(*answers), tools=[pay], stop=Stop(price=lambda _: 0.5))
    paying = store.thread("paying", agent=payer, owner="ben")
    paying.run("Pay Ben")
    paying.fork("aside")
    for _ in range(60):
        paying.run("Pay Ben")
    for number in range(60):
        store.memory("ben").add(f"Ben was paid {number} times.")


def main() -> None:
    """Make the story where there is none, and serve it until a signal."""
    parser = ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("directory")
    parser.add_argument("--below")
    parser.add_argument("--root-path", default="")
    parser.add_argument("--copied", action="store_true")
    parser.add_argument("sizes", type=int, nargs="*")
    asked = parser.parse_args()
    sizes: list[int] = asked.sizes
    age = [0.0]
    clock = lambda: time.time_ns() // 1_000 - round(age[0] * 86_400_000_000)  # noqa: E731
    if asked.copied:
        with perdure.open(f"{asked.directory}/night.db") as original:
            _tell(original)
            original.copy_to(asked.store)
    with perdure.open(asked.store, clock=clock) as store:
        if not any(True for _ in store.threads()):
            if sizes:
                _tell_long(store, *sizes)
            else:
                _tell_old(store, age)
                _tell(store)
        if asked.below:
            _serve_below(asked.below, store)
        else:
            server.serve(
                store,
                [planner],
                port=0,
                root_path=asked.root_path,
                started=lambda serving: print(serving.link, flush=True),
            )


def _serve_below(path: str, store: Store) -> None:
    """Serve an application in which the server is mounted at `path`."""
    application = Starlette(routes=[Mount(path, app=server.app(store, [planner], token="secret"))])
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}{path}/?token=secret", flush=True)
        config = uvicorn.Config(application, log_level="warning", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
