"""The commands there are, and where each one lives.

A command's file is imported when it is used, so that `holdfast --help` loads nothing that
touches a store.
"""

from __future__ import annotations

from importlib import metadata

from cyclopts import App

from holdfast.cli.usage import NOUNS

__all__ = ["ALONE", "VERBS", "build", "command", "version"]

VERBS = {
    "threads": {
        "help": "Look at threads, and move through their timelines",
        "verbs": "ls show begin log turns fork undo redo promote seal merge diff bisect rm",
    },
    "state": {
        "help": "Read and write what threads and agents know",
        "verbs": "ls get put rm log blame",
    },
    "artifacts": {
        "help": "Keep bulky content beside a thread's state",
        "verbs": "ls show get put",
    },
}

ALONE = {
    "demo": "Show what Holdfast does, in a short story on a store that you keep",
    "init": "Make a new store",
    "verify": "Check everything that is stored",
    "doctor": "Look at the store and its surroundings, and say what could be better",
    "backup": "Copy the store to a new file while others go on writing",
    "gc": "Forget what a policy of yours no longer wants kept",
    "sql": "Ask the store in SQL, read-only",
}

# With --agent the thread is left out, which a usage line made from the signature could not say.
_USAGES = {
    "ls": "[PREFIX]",
    "get": "PATH",
    "put": "PATH [VALUE]",
    "rm": "PATH",
    "log": "PATH",
    "blame": "PATH",
}


def build() -> App:
    """The command line."""
    app = App(
        name="holdfast",
        help="Keep the state of AI agents: durable, versioned and free of any vendor",
        version=lambda: f"holdfast {version()}",
        help_format="plaintext",
        version_format="plaintext",
    )
    for name, noun in VERBS.items():
        app.command(_noun(name, noun["help"], noun["verbs"].split()))
    for name, line in ALONE.items():
        app.command(f"holdfast.cli.{name}:{name}", name=name, help=line)
    app.register_install_completion_command(help="Install completion for your shell")
    app["--help"].help = "Show this page"
    app["--version"].help = "Show the version"
    return app


def command(app: App, *names: str) -> App:
    """One command of `app`, loaded, and with the whole of its help."""
    found = app
    for name in names:
        found = found[name]
    if names[0] in ALONE:
        found.help = None  # pyright: ignore[reportAttributeAccessIssue]  # its docstring instead of the line in the list
    return found


def _noun(name: str, line: str, verbs: list[str]) -> App:
    noun = App(name=name, alias=NOUNS[name], help=line)
    for verb in verbs:
        usage = _usage(verb) if name == "state" else None
        noun.command(f"holdfast.cli.{name}.{verb}:{verb}", name=verb, usage=usage)
    return noun


def _usage(verb: str) -> str:
    words = _USAGES[verb]
    return (
        f"Usage: holdfast state {verb} THREAD {words} [OPTIONS]\n"
        f"       holdfast state {verb} {words} --agent NAME [OPTIONS]"
    )


def version() -> str:
    """The version of Holdfast that is installed."""
    return metadata.version("holdfast")
