"""Another process that renders the same histories: what it says must not depend on the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from importlib import import_module
from operator import attrgetter

from perdure.testing.adapters.ground import Ground
from perdure.testing.adapters.histories import HISTORIES

__all__ = ["digests", "digests_elsewhere", "main"]


def digests(ground: Ground) -> dict[str, str]:
    """A digest of the request and the report of every history."""
    return {name: _digest(ground, name) for name in HISTORIES}


def digests_elsewhere(ground: type[Ground], seed: int) -> dict[str, str]:
    """The same, from a new process with that hash seed."""
    program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main(*sys.argv[1:])"
    command = [sys.executable, "-c", program, f"{ground.__module__}:{ground.__qualname__}"]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    told = subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60).stdout
    return json.loads(told)


def main(name: str) -> None:
    """Be that process."""
    module, _, path = name.partition(":")
    ground: type[Ground] = attrgetter(path)(import_module(module))
    sys.stdout.write(json.dumps(digests(ground())))


def _digest(ground: Ground, name: str) -> str:
    rendered = ground.rendered(HISTORIES[name])
    told = json.dumps([rendered.body, [repr(loss) for loss in rendered.losses]])
    return sha256(told.encode()).hexdigest()
