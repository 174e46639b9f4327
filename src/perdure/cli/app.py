"""The command line as a whole.

A command's file is imported when it is used, so that `perdure threads --help` loads nothing that
touches a store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Group, Parameter

from perdure.cli.command_list import ABOUT, ALONE, GROUPS, NOUNS, OPTIONS, SPELLINGS, Noun
from perdure.version import __version__

__all__ = ["build", "load"]


# With --agent the thread is left out, which a usage line made from the signature could not say.
_AFTER_THREAD = {"ls": "[PREFIX]", "put": "PATH [VALUE]"}
# Commands that share a module with another verb.
_SHARED = {
    "threads fork": "timelines",
    "threads promote": "timelines",
    "threads seal": "timelines",
    "threads merge": "timelines",
    "threads cherry-pick": "timelines",
    "threads replay": "timelines",
    "threads hand-off": "switch",
    "threads redo": "undo",
    "threads turns": "log",
    "threads rm": "begin",
    "threads redact": "begin",
    "threads search": "ls",
    "state put": "write",
    "state rm": "write",
    "calls reconcile": "settle",
    "calls resolve": "settle",
    "checkpoints derive": "show",
    "approvals approve": "decide",
    "approvals deny": "decide",
    "approvals edit": "decide",
    "approvals answer": "decide",
    "memory edit": "add",
    "memory keep": "restore",
    "memory unpin": "pin",
    "memory log": "history",
    "memory moves": "history",
    "memory undo": "history",
    "memory redo": "history",
    "keys add": "manage",
    "keys ls": "manage",
    "keys rm": "manage",
}
# What a signature does not say: a choice, or an option that can be left out only in some cases.
_WORDS = {
    "threads replay": "THREAD --onto NAME --code MODULE:NAME",
    "runs resume": "THREAD [RUN] --code MODULE:NAME",
    "runs release": "(THREAD... | --all | --run RUN)",
    "calls reconcile": "THREAD CALL --code MODULE:NAME",
    "work": "--code MODULE:NAME",
    "export": "THREAD (--format API | --git DIR)",
}


def build(only: str | None = None) -> App:
    """Return the app with every command, none of them loaded; with the one noun or command that `only` names, if it is one."""
    chosen = SPELLINGS.get(only or "", only if only in ALONE else None)
    app = App(
        name="perdure",
        help=ABOUT,
        version=f"perdure {__version__}",
        help_format="plaintext",
        version_format="plaintext",
        group_commands=Group("Options", sort_key=8),
        group_parameters=Group("Options", sort_key=8),
    )
    groups = {name: Group(name, sort_key=at) for at, name in enumerate(GROUPS)}
    for at, (name, noun) in enumerate(NOUNS.items()):
        if chosen in (None, name):
            # A script that completes other spellings too would stop at thread, which threads begins with.
            also = () if only == "--install-completion" else noun.also
            app.command(_noun(name, noun._replace(also=also), groups["Work"], at))
    for at, (name, alone) in enumerate(ALONE.items(), start=len(NOUNS)):
        if chosen not in (None, name):
            continue
        group = groups[alone.group]
        place = f"perdure.cli.commands.{alone.place or f'{name}:{name}'}"
        app.command(place, name=name, help=alone.line, usage=_spelled(name), group=group, sort_key=at)
    if chosen is None:
        app.command(_installing_completion(app), name="--install-completion")
        for name, line in OPTIONS.items():
            app[name].help = line
    return app


def _installing_completion(app: App) -> Callable[..., None]:
    """Return the command that installs completion; the library's own changes the startup file with --output, too."""

    def install(
        *,
        shell: Annotated[Literal["zsh", "bash", "fish", "powershell"] | None, Parameter()] = None,
        output: Annotated[Path | None, Parameter(name=("-o", "--output"))] = None,
    ) -> None:
        """Install completion for your shell

        The script is written where the shell looks for it, and a line is added to ~/.bashrc or ~/.zshrc.

        Parameters
        ----------
        shell
            The shell; the one that runs this command if left out
        output
            Write the script to this file, and nothing else
        """
        from cyclopts.completion.install import create_install_completion_command

        def write(**how: Any) -> Path:
            path = app.install_completion(**how)
            if how["shell"] == "bash":
                path.write_text(_for_bash(path.read_text(encoding="utf-8")), encoding="utf-8")
            return path

        if output is None or shell is None:
            create_install_completion_command(write, output is None)(shell=shell, output=output)
            return
        written = write(shell=shell, output=output, add_to_startup=False)
        print(f"Wrote the script to {written}, and nothing else. Load it in the startup file of {shell}.")

    return install


def _for_bash(script: str) -> str:
    """Return the script of the library, which then completes words with : and @, and offers no files in place of ids."""
    script = script.replace("\n_perdure() {", "\n_perdure_words() {")
    script = script.replace("\ncomplete -F _perdure perdure\n", _BASH)
    return script.replace('local _cmd="${COMP_WORDS[0]}"', 'local _cmd="${COMP_WORDS[0]}"; _asks_store=1')


# Readline ends a word at : and @, which ids may have.  The pieces are put together before the library's function sees
# them, and what stands before the last piece is taken off the offers, which replace that piece alone.
_BASH = r"""
_perdure() {
  local -a _pieces=("${COMP_WORDS[@]}") COMP_WORDS=()
  local _rest="$COMP_LINE" _piece _blank _joins=0 _at=0 _asks_store=0 _i _before
  for _i in "${!_pieces[@]}"; do
    _piece="${_pieces[_i]}"
    _blank="${_rest%%[![:space:]]*}"
    _rest="${_rest#"$_blank"}"
    _rest="${_rest#"$_piece"}"
    if [[ -n "$_piece" && -z "$_blank" && ( $_joins -eq 1 || "$_piece" == [:@]* ) && ${#COMP_WORDS[@]} -gt 1 ]]; then
      COMP_WORDS[${#COMP_WORDS[@]}-1]+="$_piece"
    else
      COMP_WORDS+=("$_piece")
    fi
    [[ "$_piece" == *[:@] ]] && _joins=1 || _joins=0
    [[ $_i -eq $COMP_CWORD ]] && _at=$((${#COMP_WORDS[@]} - 1))
  done
  local COMP_CWORD=$_at
  COMP_WORDS[_at]="${COMP_WORDS[_at]//\\/}"
  _perdure_words "$@"
  _piece="${COMP_WORDS[COMP_CWORD]}"
  _before="${_piece%"${_piece##*[:@]}"}"
  if [[ -n "$_before" && "$COMP_WORDBREAKS" == *:* ]]; then
    printf -v _before '%q' "${_before%@}"  # readline leaves an @ in the piece
    COMPREPLY=("${COMPREPLY[@]#"$_before"}")
  fi
  [[ $_asks_store -eq 1 && ${#COMPREPLY[@]} -eq 0 ]] && compopt +o bashdefault +o default 2>/dev/null
  return 0
}

complete -o bashdefault -o default -F _perdure perdure
"""


def load(app: App, words: Sequence[str]) -> App | None:
    """Load the command that `words` begin with, with all of its help; None if there is none."""
    found, chain = app, ["perdure"]
    for word in words[:2]:
        if word.startswith("-") or found.default_command is not None or word not in found:
            break
        found = found[word]
        chain.append(found.name[0])
    if found.default_command is None:
        return None
    paragraphs = cleandoc(found.default_command.__doc__ or "").split("\n\n")
    found.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    if found.usage is None:
        found.usage = f"Usage: {' '.join((*chain, *_arguments(found)))} [OPTIONS]"
    return found


def _arguments(command: App) -> Iterator[str]:
    """Yield the words of a command by name, those that can be left out in brackets, then the options that cannot."""
    found = [each for each in command.assemble_argument_collection() if each.show]
    for each in found:
        if each.index is not None:
            repeated = "..." if each.field_info.kind is each.field_info.VAR_POSITIONAL else ""
            yield f"{each.name}{repeated}" if each.required else f"[{each.name}{repeated}]"
    for each in found:
        if each.index is None and each.required:
            yield f"{each.name} {each.parameter.metavar or each.name.lstrip('-').upper()}"


def _noun(name: str, noun: Noun, group: Group, at: int) -> App:
    titled = {
        Group(title, sort_key=number): verbs for number, (title, verbs) in enumerate(noun.groups().items())
    }
    app = App(
        name=name,
        alias=noun.also,
        help=noun.line,
        group=group,
        sort_key=at,
        group_commands=next(iter(titled)),
    )
    groups = {verb: each for each, verbs in titled.items() for verb in verbs}
    for number, (verb, line) in enumerate(noun.verbs.items()):
        usage = _usage(verb) if name == "state" else _spelled(f"{name} {verb}")
        module = _SHARED.get(f"{name} {verb}", verb)
        place = f"perdure.cli.commands.{name}.{module}:{verb.replace('-', '_')}"
        app.command(place, name=verb, help=line, usage=usage, group=groups[verb], sort_key=number)
    return app


def _spelled(command: str) -> str | None:
    words = _WORDS.get(command)
    return None if words is None else f"Usage: perdure {command} {words} [OPTIONS]"


def _usage(verb: str) -> str:
    words = _AFTER_THREAD.get(verb, "PATH")
    return (
        f"Usage: perdure state {verb} THREAD {words} [OPTIONS]\n"
        f"       perdure state {verb} {words} --agent NAME [OPTIONS]"
    )
