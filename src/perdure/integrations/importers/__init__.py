"""Imports whole sessions of other tools: of Claude Code, Codex, LangGraph, the OpenAI Agents SDK, ATIF, Letta, ChatGPT
and claude.ai.

Each session becomes a thread, each branch of it a timeline, each sub-agent a thread of its own.  Nothing is executed,
no imported text becomes words of the system, and no imported call can be started.  The originals are kept by digest, and
a report says what has no place in a transcript.  Importing again adds only what is new.

    with perdure.open("agents.db") as store:
        report = import_sessions(store, "~/.claude/projects")
"""

from __future__ import annotations

from perdure.integrations.importers.import_sessions import (
    ImportProgress,
    ImportReport,
    RefusedSource,
    import_sessions,
)
from perdure.integrations.importers.report import SessionReport
from perdure.integrations.importers.session import FORMATS

__all__ = ["import_sessions", "FORMATS", "ImportProgress", "ImportReport", "RefusedSource", "SessionReport"]
