"""Who decides at the command line: the name that was given, else the user of the operating system.

A name that the operating system vouches for begins with `os:`; nobody can give such a name with `--by`,
so that the record tells the two apart.
"""

from __future__ import annotations

import os
import pwd

from perdure.errors import Invalid

__all__ = ["decided_by", "os_user"]

_MARK = "os:"


def decided_by(name: str | None) -> str:
    """The name that a decision is recorded under; raises `Invalid` if it claims to be the system's word."""
    if name is None:
        return os_user()
    if name.startswith(_MARK) and name != os_user():
        raise Invalid(
            f"'{name}' says that the operating system knows you by that name, which it does not; nothing was done. "
            f"Leave --by out to be recorded as {os_user()}, or give a name that does not begin with {_MARK}."
        )
    return name


def os_user() -> str:
    """The user who runs this process, as the system's accounts name them; by number if they do not."""
    number = os.getuid()
    try:
        return f"{_MARK}{pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"{_MARK}{number}"
