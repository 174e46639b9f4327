"""What `perdure demo` tells: the acts, the stage they are told on, and the process that is killed in one of them."""

from __future__ import annotations
