"""Who decides at the command line: the name that was given, else the user of the operating system.

A name that the operating system vouches for begins with `os:`; `--by` accepts no such name,
so that the record keeps the two apart.
"""

from __future__ import annotations

import os
import pwd

from perdure.errors import Invalid

__all__ = ["decided_by", "os_user"]

_MARK = "os:"


def decided_by(name: str | None) -> str:
    """Return the name that a decision is recorded under; raises `Invalid` if it begins with the mark of the system."""
    if name is None:
        return os_user()
    if name.startswith(_MARK) and name != os_user():
        raise Invalid(
            f"'{name}' says that the operating system knows you by that name, which it does not; nothing was done.",
            code="name_not_allowed",
            advice=f"Leave --by out to be recorded as {os_user()}, or give a name that does not begin with {_MARK}.",
            name=name,
        )
    return name


def os_user() -> str:
    """Return the user of this process by account name, or by number if the account has none."""
    number = os.getuid()
    try:
        return f"{_MARK}{pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"{_MARK}{number}"
