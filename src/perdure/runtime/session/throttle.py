"""Limits that all workers of a store share: runs at once, and requests and tokens a minute, for an agent or a backend.

A worker does not write for each request.  It takes a *slice* of what a limit allows, by one write to the cell of the
limit in the space `work`, and uses the slice up in memory:

    slots/<name>   who has how many of the runs at once, until when; renewed while the worker lives
    rate/<name>    the slices of the last minute: how much, and until when it may be used

A slice of requests or tokens may be used for a few seconds.  It counts until a minute after that, so what is used in
any minute is at most the limit, by the store's clock; what is left of a slice when its time is over is lost.  How many
tokens a step takes is known only afterwards.  A step begins if its worker has tokens left, and what it took beyond
them is subtracted from the worker's next slices.

A slot is free again when its worker gives it back, when the worker's process is gone, or when it was not renewed for
twice as long as a lease lasts: by then the runs of a worker that was stopped have lost their leases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from itertools import count
from threading import Lock
from typing import Literal, TypeAlias, cast

import msgspec

from perdure.engines.contract import CellWrite, Engine, Write
from perdure.engines.loops import Attempts
from perdure.errors import Conflict, PerdureError
from perdure.history.space import read_record
from perdure.model import canonical
from perdure.model.digest import Kind, digest_of
from perdure.model.run import Usage
from perdure.runtime.agent.agent import RunLimits
from perdure.runtime.session.lease_keeper import TTL_SECONDS
from perdure.runtime.session.records import WORK

__all__ = ["Limit", "SharedLimits", "Throttle"]

_SECOND = 1_000_000  # µs
_MINUTE = 60 * _SECOND
_USED_FOR = 5 * _SECOND  # how long a slice may be used
_SLICES = 10  # of a minute's requests or tokens
_SHARES = 4  # of the runs at once
_SLOTS_FOR = round(2 * TTL_SECONDS * _SECOND)
_WAIT_SECONDS_MAX = 1.0

_Amount: TypeAlias = Literal["requests", "tokens"]


class _SlotLease(msgspec.Struct, frozen=True):
    holder: str
    worker: int  # a holder may have several
    count: int
    clock: str
    until: int


class _Slots(msgspec.Struct, frozen=True):
    """The value of the cell of a limit of runs at once."""

    leases: tuple[_SlotLease, ...] = ()


class _Slice(msgspec.Struct, frozen=True):
    amount: int
    clock: str
    until: int  # when it may be used no longer


class _Rates(msgspec.Struct, frozen=True):
    """The value of the cell of limits a minute."""

    requests: tuple[_Slice, ...] = ()
    tokens: tuple[_Slice, ...] = ()


_workers = count(1)  # of this process
_slots = msgspec.json.Decoder(_Slots)
_rates = msgspec.json.Decoder(_Rates)


class Limit:
    """One worker's share of the limits of one agent or backend.  Thread-safe."""

    def __init__(self, engine: Engine, name: str, most: RunLimits) -> None:
        """Take nothing yet."""
        self._engine, self._name, self._most = engine, name, most
        self._worker = next(_workers)
        self._lock = Lock()
        self._has_slots, self._used_slots, self._slots_until = 0, 0, 0
        self._left: dict[_Amount, int] = {"requests": 0, "tokens": 0}  # of the slices; below 0: owed
        self._until: dict[_Amount, int] = {"requests": 0, "tokens": 0}

    # ---- runs at once

    def take_slot(self) -> bool:
        """Take the right to one more run; False if all are taken."""
        if self._most.runs is None:
            return True
        with self._lock:
            if self._used_slots >= self._has_slots:
                share = max(1, self._most.runs // _SHARES)
                self._lease_slots(self._used_slots + share)
            if self._used_slots >= self._has_slots:
                return False
            self._used_slots += 1
            return True

    def give_slot(self) -> None:
        """Give the right to one run back to this worker's share."""
        if self._most.runs is not None:
            with self._lock:
                self._used_slots -= 1

    def settle(self, *, renew: bool = True) -> None:
        """Give back to others what this worker does not use, and renew what it uses."""
        if self._most.runs is None:
            return
        with self._lock:
            due = (
                renew
                and self._used_slots
                and self._engine.instant().at >= self._slots_until - _SLOTS_FOR * 2 // 3
            )
            if due or self._has_slots > self._used_slots:
                self._lease_slots(self._used_slots)

    def _lease_slots(self, wanted: int) -> None:
        """Lease as many slots as are free, up to `wanted`, in place of those that this worker has."""
        assert self._most.runs is not None
        attempts = Attempts(f"the limit '{self._name}'", "no run was begun")
        name, own = f"slots/{self._name}", self._engine.holder()
        while True:
            attempts.begin()
            cell = self._engine.cell(WORK, name)
            found = read_record(cell, _slots).leases if cell is not None and cell.value is not None else ()
            now = self._engine.instant()
            others = [
                each
                for each in found
                if (each.holder, each.worker) != (own, self._worker)
                and each.clock == now.clock
                and each.until > now.at
                and not self._engine.gone(each.holder)
            ]
            amount = max(0, min(wanted, self._most.runs - sum(each.count for each in others)))
            until = now.at + now.error + _SLOTS_FOR
            leases = (
                *others,
                *((_SlotLease(own, self._worker, amount, now.clock, until),) if amount else ()),
            )
            if self._write(name, cell.revision if cell else 0, canonical.encode_struct(_Slots(leases))):
                self._has_slots, self._slots_until = amount, until
                return

    # ---- requests and tokens a minute

    def take_step(self) -> float:
        """Take the right to one request, and see that tokens are left; return 0, or in how many seconds to ask again."""
        with self._lock:
            for amount in ("tokens", "requests"):
                wait = self._fill(amount)
                if wait > 0:
                    return wait
            self._left["requests"] -= 1
            return 0.0

    def used(self, tokens: int) -> None:
        """Take what a step used out of the slice."""
        with self._lock:
            self._left["tokens"] -= tokens

    def _fill(self, amount: _Amount) -> float:
        """Take slices until something is left; return 0, or how long it takes until there is more."""
        most = self._most.requests_per_minute if amount == "requests" else self._most.tokens_per_minute
        if most is None:
            return 0.0
        now = self._engine.instant()
        if now.at + now.error >= self._until[amount]:
            self._left[amount] = min(0, self._left[amount])
        while self._left[amount] <= 0:
            wait = self._take_slice(amount, most)
            if wait > 0:
                return wait
        return 0.0

    def _take_slice(self, amount: _Amount, most: int) -> float:
        attempts = Attempts(f"the limit '{self._name}'", "no request was sent")
        name = f"rate/{self._name}"
        while True:
            attempts.begin()
            cell = self._engine.cell(WORK, name)
            rates = read_record(cell, _rates) if cell is not None and cell.value is not None else _Rates()
            now = self._engine.instant()
            counted = [
                each
                for each in cast("tuple[_Slice, ...]", getattr(rates, amount))
                if each.clock == now.clock and each.until + _MINUTE > now.at
            ]
            free = most - sum(each.amount for each in counted)
            if free <= 0:
                return max(0.01, (counted[0].until + _MINUTE - now.at) / _SECOND)
            until = now.at + now.error + _USED_FOR
            taken = _Slice(min(free, max(1, most // _SLICES)), now.clock, until)
            value = msgspec.structs.replace(rates, **{amount: (*counted, taken)})
            if self._write(name, cell.revision if cell else 0, canonical.encode_struct(value)):
                self._left[amount] += taken.amount
                self._until[amount] = until
                return 0.0

    def _write(self, name: str, revision: int, value: bytes) -> bool:
        """Write the cell of a limit; False if another worker was first.

        The op_id names this worker: with the same one, two workers of a process that take the same slice at the same
        instant would be one write, and both would use the slice.
        """
        write = Write(
            space=WORK,
            op_id=f"{name}:{revision}:{self._engine.holder()}:{self._worker}",
            intent=digest_of(Kind.BODY, value),
            cells=(CellWrite(name=name, expected=revision, value=value),),
        )
        try:
            self._engine.apply(write)
        except Conflict:
            return False
        return True


class Throttle(msgspec.Struct, frozen=True):
    """The limits that the steps of one run keep."""

    limits: SharedLimits
    agent: str

    async def before_step(self, backend: str) -> None:
        """Wait until the limits of the agent and of the backend allow one more request."""
        for limit in self.limits.of(self.agent, backend):
            while wait := await asyncio.to_thread(limit.take_step):
                await asyncio.sleep(min(wait, _WAIT_SECONDS_MAX))

    def after_step(self, backend: str, usage: Usage) -> None:
        """Count the tokens of a step."""
        for limit in self.limits.of(self.agent, backend):
            limit.used(usage.input_tokens + usage.output_tokens)


class SharedLimits:
    """The limits that one worker keeps, by agent and by backend."""

    def __init__(
        self, engine: Engine, agents: Mapping[str, RunLimits], backends: Mapping[str, RunLimits]
    ) -> None:
        """Share them with all workers of the store; a name without limits has none."""
        make = partial(Limit, engine)
        self.agents = {name: make(f"agent/{name}", most) for name, most in agents.items()}
        self.backends = {name: make(f"backend/{name}", most) for name, most in backends.items()}

    def __bool__(self) -> bool:
        """True if there is any limit."""
        return bool(self.agents or self.backends)

    def of(self, agent: str, backend: str) -> list[Limit]:
        """Return the limits of a step."""
        return [each for each in (self.agents.get(agent), self.backends.get(backend)) if each is not None]

    def settle(self, *, renew: bool = True) -> None:
        """Give unused slots back and renew the others; what cannot be written now is written the next time."""
        for limit in (*self.agents.values(), *self.backends.values()):
            try:
                limit.settle(renew=renew)
            except PerdureError:
                continue
