"""What a run and a command import when they begin, so that a process that is forked for one life has it already.

A child that imports it by itself takes twice as long.  Nothing here starts a thread: the server of forks must have none.
"""

from __future__ import annotations

from importlib import import_module

_MODULES = (
    "perdure.cli.input.stores",
    "perdure.cli.run",
    "perdure.engines.sqlite.engine",
    "perdure.history.verify.store",
    "perdure.ledger.verify",
    "perdure.providers.openai_chat.servers",
    "perdure.providers.transport.registry",
    "perdure.runtime.agent.builtin_tools",
    "perdure.runtime.calls.recovery",
    "perdure.runtime.inference.switch",
    "perdure.runtime.run.control",
    "perdure.runtime.run.queue",
    "perdure.shapes.threads",
    "perdure.switching.checkpoint.derive",
    "perdure.switching.commit",
    "perdure.switching.route",
)

for _name in _MODULES:
    import_module(_name)
