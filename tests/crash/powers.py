"""Laying powers down: root writes where permission bits say no, until it gives up its capabilities."""

from __future__ import annotations

import ctypes
import os
import sys

__all__ = ["can_be_stopped", "lay_down"]

_VERSION_3 = 0x20080522


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Powers(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32 * 2),
        ("permitted", ctypes.c_uint32 * 2),
        ("inheritable", ctypes.c_uint32 * 2),
    )


def can_be_stopped() -> bool:
    """Whether permission bits stop this process, or it can see to it that they do."""
    return os.geteuid() != 0 or sys.platform == "linux"


def lay_down() -> None:
    """Give up, for good, what lets root look past permission bits."""
    if os.geteuid() != 0:
        return
    header, none = _Header(_VERSION_3, 0), _Powers()
    if ctypes.CDLL(None, use_errno=True).capset(ctypes.byref(header), ctypes.byref(none)) != 0:
        raise OSError(ctypes.get_errno(), "capset")
